"""The invariants as test cases of pytest: an engine is judged once, and told of one by one."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

VERDICT = "VERDICT"
"""The case behind all invariants: it fails where the whole is no pass, were all but skipped."""

SHARED = "MEDUSA_SHARED"
"""Names a folder in which several processes of one run share what was judged."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is judged and how, as `medusa-oracles check` takes it.

    `beside` is the folder of who asks, where the engine's module may stand as well.
    """

    engine: str
    beside: str
    seed: int
    max_examples: int
    timeout: float
    expected: str | None
    contracts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One invariant of an engine, or the verdict on all of them."""

    code: str
    asked: Asked

    def check(self) -> None:
        """Pass, fail, skip or xfail in the way of pytest, by what the invariant came to."""
        document = judged(self.asked)
        if self.code == VERDICT:
            _tell_verdict(document)
            return
        row = next(row for row in document["invariants"] if row["code"] == self.code)
        status, reason = row["status"], row["reason"]
        if status == "not-exercised":
            pytest.skip(reason)
        if status == "expected-failure":
            pytest.xfail(reason)
        if status == "fail":
            pytest.fail(_finding(document, row), pytrace=False)
        if status != "pass":
            pytest.fail(f"{self.code} {status}: {reason}", pytrace=False)


def cases(asked: Asked) -> list[Case]:
    """A case for each invariant of the contracts in registry order, and the verdict last."""
    from medusa_spec.registry import invariants

    codes = [code for code, rule in invariants().items() if rule.contract in asked.contracts]
    return [Case(code, asked) for code in (*codes, VERDICT)]


@cache
def judged(asked: Asked) -> dict[str, Any]:
    """The document of the check: run once by whichever process of the session comes first."""
    shared = os.environ.get(SHARED)
    if shared is None:
        return _judge(asked)
    name = hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
    kept = Path(shared) / f"{name}.json"
    with _alone(Path(shared) / f"{name}.lock"):
        if not kept.exists():
            kept.write_text(json.dumps(_judge(asked)), "utf-8")
    document: dict[str, Any] = json.loads(kept.read_text("utf-8"))
    return document


def _judge(asked: Asked) -> dict[str, Any]:
    from medusa_conformance.check_document import Run
    from medusa_conformance.cli_common import workers
    from medusa_conformance.expected import load_expectations
    from medusa_conformance.judging import judge_target, keep
    from medusa_conformance.targets import Target
    from medusa_spec.errors import InputError

    run = Run(asked.contracts, asked.seed, asked.max_examples)
    try:
        expected = () if asked.expected is None else load_expectations(Path(asked.expected))
        target = Target.module(
            asked.engine, folder_of(asked.engine, Path(asked.beside)), asked.timeout
        )
        document = judge_target(target, run, expected, workers())
        keep(document, None)
    except InputError as error:
        pytest.exit(f"medusa: {error}", returncode=pytest.ExitCode.USAGE_ERROR)
    return document


def folder_of(engine: str, beside: Path) -> Path:
    """The folder from which an engine's module is found, as pytest finds it, or beside who asks."""
    module = engine.partition(":")[0].partition(".")[0]
    try:
        spec = find_spec(module) if module else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        return beside
    package = spec.submodule_search_locations is not None
    found = Path(spec.origin).resolve().parents[1 if package else 0]
    return Path.cwd() if "site-packages" in found.parts else found


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _finding(document: dict[str, Any], row: dict[str, Any]) -> str:
    """The whole finding of a cause; of what follows from one, a line that names it."""
    from medusa_conformance.finding_text import finding_lines

    code = row["code"]
    many = f"{code} is broken on {row['failed']} of {row['executed']} coordinates"
    for finding in document["findings"]:
        if finding["code"] == code:
            return "\n".join(finding_lines(finding))
        if any(each["code"] == code for each in finding["follows"]):
            return f"{many}; it follows from {finding['code']}\n{finding['replay']}"
    return many


def _tell_verdict(document: dict[str, Any]) -> None:
    from medusa_conformance.outcome import outcome, summary
    from medusa_conformance.render_check import expectation_lines, incident_lines

    if document["verdict"] == "pass":
        return
    lines = [f"{document['verdict'].upper()}  {summary(outcome(document))}"]
    lines += [line.plain for line in (*incident_lines(document), *expectation_lines(document))]
    pytest.fail("\n".join(lines), pytrace=False)
