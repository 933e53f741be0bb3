"""The invariants as test cases of pytest: an engine is judged once, and told of one by one.

Loaded with every session of pytest, so nothing of the suite is imported before a case runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

VERDICT = "VERDICT"
"""The case behind all invariants: it fails where the whole is no pass, were all but skipped."""

GRACE = 5.0
"""Seconds that a judge gets to end once its input has ended."""


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


@dataclass(slots=True)
class Session:
    """One run of pytest from `folder`; `shared` is a folder of all processes that share the run."""

    folder: Path
    shared: Path | None = None
    told: dict[Asked, dict[str, Any]] = field(default_factory=dict)


sessions: list[Session] = []
"""Those of this process: a test of somebody's plugin runs one inside another."""


@dataclass(frozen=True, slots=True)
class Case:
    """One invariant of an engine, or the verdict on all of them."""

    code: str
    asked: Asked

    def check(self) -> None:
        """Pass, fail, skip or xfail in the way of pytest, by what the invariant came to."""
        document = judged(self.asked)
        if "error" in document:
            pytest.fail(document["error"], pytrace=False)
        if self.code == VERDICT:
            _tell_verdict(document)
            return
        row = next(row for row in document["invariants"] if row["code"] == self.code)
        status, reason = row["status"], row["reason"]
        if status == "not-exercised":
            pytest.skip(reason)
        if status == "expected-failure":
            # Goes on where `--runxfail` makes nothing of it.
            pytest.xfail(reason)
        if status in ("fail", "expected-failure"):
            pytest.fail(_finding(document, row), pytrace=False)
        if status != "pass":
            pytest.fail(f"{status}: {reason}", pytrace=False)


def cases(asked: Asked) -> list[Case]:
    """A case for each invariant of the contracts in registry order, and the verdict last."""
    from medusa_spec.registry import invariants

    codes = [code for code, rule in invariants().items() if rule.contract in asked.contracts]
    return [Case(code, asked) for code in (*codes, VERDICT)]


def judged(asked: Asked) -> dict[str, Any]:
    """The document of the check, or an `error`: by whichever process of the run comes first."""
    if not sessions:
        # The plugin may be switched off where its cases are used.
        sessions.append(Session(Path.cwd()))
    session = sessions[-1]
    if asked not in session.told:
        name = hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
        if session.shared is None:
            session.told[asked] = _judge(asked, session, name)
        else:
            kept = session.shared / f"{name}.json"
            with _alone(kept.with_suffix(".lock")):
                if not kept.exists():
                    kept.write_text(json.dumps(_judge(asked, session, name)), "utf-8")
            session.told[asked] = json.loads(kept.read_text("utf-8"))
    return session.told[asked]


def _judge(asked: Asked, session: Session, name: str) -> dict[str, Any]:
    """Judge in another Python: what it imports and starts is no business of the tests."""
    folder = folder_of(asked.engine, Path(asked.beside))
    path = [place for place in _ours_alone() if place != str(folder)]
    request = {
        **asdict(asked),
        "folder": str(folder),
        "kept": str(_place(asked, session, name)),
        "path": os.pathsep.join(path),
        "python_path": os.environ.get("PYTHONPATH", ""),
    }
    environment = {**os.environ, "PYTHONPATH": request["path"]}
    with tempfile.TemporaryDirectory(prefix="medusa-") as place:
        answer, said = Path(place) / "answer.json", Path(place) / "said.txt"
        with said.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "medusa_conformance.pytest_judge", str(answer)],
                cwd=session.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(f"{json.dumps(request)}\n".encode())
                process.stdin.flush()
            process.wait()
        finally:
            _end(process)
        if answer.exists():
            found: dict[str, Any] = json.loads(answer.read_text("utf-8"))
            return found
        last = (said.read_text("utf-8", "replace").strip().splitlines() or ["nothing"])[-1]
    return {"error": f"{asked.engine}: the judge ended with status {process.returncode}: {last}"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the judge's input, which ends it and all that it has started, and what does not end."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _place(asked: Asked, session: Session, name: str) -> Path:
    """Where findings go: to each engine of a run another folder, or one would sweep the other's."""
    if session.shared is None:
        first = not session.told
    else:
        try:
            (session.shared / "first").touch(exist_ok=False)
            first = True
        except FileExistsError:
            first = False
    kept = Path(".medusa")
    return kept if first else kept / f"{re.sub(r'[^A-Za-z0-9_.]', '.', asked.engine)}-{name[:6]}"


def folder_of(engine: str, beside: Path) -> Path:
    """The folder from which an engine's module is found, as pytest finds it, or beside who asks."""
    try:
        spec = find_spec(_package(engine))
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        return beside
    package = spec.submodule_search_locations is not None
    found = Path(spec.origin).resolve().parents[1 if package else 0]
    return Path.cwd() if "site-packages" in found.parts else found


def absent(engine: str, beside: str) -> bool:
    """Whether an engine's module is neither where pytest imports from nor beside who asks."""
    name = _package(engine)
    try:
        return find_spec(name) is None and PathFinder.find_spec(name, [beside]) is None
    except (ImportError, ValueError):
        return False


def _package(engine: str) -> str:
    """The part of an engine's name that can be looked for without an import."""
    return engine.partition(":")[0].partition(".")[0]


def _ours_alone() -> list[str]:
    """Folders from which pytest imports, such as its `pythonpath`, and no other Python would."""
    others = {*_fresh_path(), sysconfig.get_path("scripts")}
    places = dict.fromkeys(os.path.abspath(place) for place in sys.path if place)
    return [place for place in places if place not in others]


@cache
def _fresh_path() -> tuple[str, ...]:
    command = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path))"]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.run(command, env=bare, capture_output=True, text=True, check=True).stdout
    return tuple(os.path.abspath(place) for place in json.loads(said) if place)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    import fcntl

    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _finding(document: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """The whole finding of a cause; of what follows from one, a line that names it."""
    from medusa_conformance.finding_text import told_lines

    code = row["code"]
    for finding in document["findings"]:
        if finding["code"] == code:
            return "\n".join(told_lines(finding))
    many = f"broken on {row['failed']} of {row['executed']} coordinates"
    for finding in document["findings"]:
        if any(each["code"] == code for each in finding["follows"]):
            return f"{many}; it follows from {finding['code']}\n{finding['replay']}"
    return many


def _tell_verdict(document: Mapping[str, Any]) -> None:
    from medusa_conformance.finding_text import finding_lines
    from medusa_conformance.outcome import listed, outcome, summary
    from medusa_conformance.render_check import expectation_lines, incident_lines
    from medusa_conformance.verdicts import unasked

    if document["verdict"] == "pass":
        return
    failed = [row["code"] for row in document["invariants"] if row["status"] == "fail"]
    said = summary(outcome(document), "each skipped with its reason")
    lines = [f"{document['verdict'].upper()}  {said}"]
    if failed:
        lines.insert(0, f"broken: {listed(failed)}")
    lines += [line.plain for line in (*incident_lines(document), *expectation_lines(document))]
    others = unasked((entry["code"] for entry in document["findings"]), document["invariants"])
    for finding in document["findings"]:
        if finding["code"] in others:
            lines += finding_lines(finding)
    pytest.fail("\n".join(lines), pytrace=False)
