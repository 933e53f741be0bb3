"""The pytest plugin: `pytest --medusa-engine module:attribute`, and cases for a file of tests.

Loaded with every session of pytest, so it imports nothing of the suite before an engine is named.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from medusa_conformance import MAX_EXAMPLES, SEED, TIMEOUT
from medusa_conformance.cases import Asked, Case, Session, absent, cases, sessions
from medusa_conformance.engine_name import misnamed

OPTION = "--medusa-engine"

GROUP = "medusa"
"""What the ids of the items begin with, as those of a file begin with its path."""

SEEDS, EXAMPLES, SECONDS = (0, 2**32 - 1), (1, 100_000), (0.1, 3600)
"""From which to which they may be."""

NAMED = pytest.StashKey[list[str]]()
"""Ids of items that the command line names as it names files of tests."""

SHARED = pytest.StashKey[str]()
"""The folder that a controller of pytest-xdist has made for its workers."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, in a group of their own."""
    group = parser.getgroup("medusa", "medusa-oracles: judge a Medusa engine")
    group.addoption(
        OPTION, metavar="MODULE:ATTRIBUTE", help="one test for each invariant of this engine"
    )
    group.addoption(
        "--medusa-seed",
        type=_within(int, *SEEDS),
        default=SEED,
        help="of the drawn coordinates",
    )
    group.addoption(
        "--medusa-max-examples",
        type=_within(int, *EXAMPLES),
        default=MAX_EXAMPLES,
        help="random coordinates, besides the frozen ones",
    )
    group.addoption(
        "--medusa-timeout",
        type=_within(float, *SECONDS),
        default=TIMEOUT,
        help="seconds that the engine has for each reply",
    )
    group.addoption(
        "--medusa-expected-failures", metavar="FILE", help="a YAML list of what fails today"
    )


def _within(number: type[int] | type[float], least: float, greatest: float) -> Callable[..., Any]:
    def read(text: str) -> float:
        try:
            value = number(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no {number.__name__}") from None
        if not least <= value <= greatest:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {greatest}")
        return value

    return read


def pytest_configure(config: pytest.Config) -> None:
    """Begin a session, and refuse at once what can be seen to lead nowhere."""
    shared = getattr(config, "workerinput", {}).get("medusa_shared")
    folder = Path(config.invocation_params.dir)
    sessions.append(Session(folder, None if shared is None else Path(shared)))
    engine = config.getoption(OPTION)
    if engine is None:
        return
    rule = misnamed(engine, folder)
    if rule is not None:
        raise pytest.UsageError(f"{OPTION}: {engine!r} {rule}")
    asked = _asked(config)
    if asked.expected is not None:
        from medusa_conformance.expected import load_expectations
        from medusa_spec.errors import InputError

        try:
            load_expectations(Path(asked.expected))
        except InputError as error:
            raise pytest.UsageError(f"--medusa-expected-failures: {error}") from None
    # pytest would look for files of this name.
    named = [argument for argument in config.args if argument.startswith(f"{GROUP}::")]
    known = {f"{GROUP}::{case.code}" for case in cases(asked)}
    for argument in named:
        if argument not in known:
            raise pytest.UsageError(f"there is no {argument}; --co lists what there is")
    config.stash[NAMED] = named
    config.args = [argument for argument in config.args if argument not in named]


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the session; the folder of its workers, who are gone, goes with it."""
    sessions.pop()
    if SHARED in config.stash:
        shutil.rmtree(config.stash[SHARED], ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Name a folder to each worker of pytest-xdist, so that they judge an engine once together."""
    stash = node.config.stash
    if SHARED not in stash:
        stash[SHARED] = tempfile.mkdtemp(prefix="medusa-")
    node.workerinput["medusa_shared"] = stash[SHARED]


class Invariants(pytest.Collector):
    """All invariants of the engine that the command line names."""

    def collect(self) -> Iterator[pytest.Item]:
        """An item for each of them, or for those that are named.

        The engine is looked for no earlier: a file of tests adds its folder to those that pytest
        imports from.
        """
        named, asked = self.config.stash[NAMED], _asked(self.config)
        _look_for(asked.engine, asked.beside)
        for case in cases(asked):
            if not named or f"{GROUP}::{case.code}" in named:
                item = InvariantItem.from_parent(self, name=case.code)
                item.case = case
                yield item


def _look_for(engine: str, beside: str) -> None:
    """An engine whose module is nowhere is one error, and not one for each invariant."""
    if absent(engine, beside):
        raise pytest.Collector.CollectError(f"there is no module of the engine {engine!r}")


class InvariantItem(pytest.Item):
    """One invariant of the engine that was named; its id is the invariant's code."""

    case: Case

    def runtest(self) -> None:
        """Judge the engine where nobody has yet, and tell of this invariant."""
        self.case.check()

    def reportinfo(self) -> tuple[Path, None, str]:
        """What a report calls it. The end of its id, alone, would be taken for a class's method."""
        return self.config.rootpath, None, f"{self.name} of {self.case.asked.engine}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the invariants first, so that `-k` chooses among them as among all others."""
    if config.getoption(OPTION) is None:
        return
    group = Invariants.from_parent(session, name=GROUP, nodeid=GROUP)
    # Reported as the collection of any file is: what is collected is counted there.
    group.ihook.pytest_collectstart(collector=group)
    report = group.ihook.pytest_make_collect_report(collector=group)
    # Taken out as pytest takes it out: no worker of pytest-xdist could send it.
    report.__dict__.pop("call", None)
    group.ihook.pytest_collectreport(report=report)
    items += report.result


def _asked(config: pytest.Config) -> Asked:
    from medusa_spec.registry import CONTRACTS

    folder = config.invocation_params.dir
    expected = config.getoption("--medusa-expected-failures")
    return Asked(
        config.getoption(OPTION),
        str(folder),
        config.getoption("--medusa-seed"),
        config.getoption("--medusa-max-examples"),
        config.getoption("--medusa-timeout"),
        None if expected is None else str(folder / expected),
        CONTRACTS,
    )


def parametrize_with_invariants(
    engine: str,
    *,
    seed: int = SEED,
    max_examples: int = MAX_EXAMPLES,
    timeout: float = TIMEOUT,
    expected_failures: str | os.PathLike[str] | None = None,
    contracts: Sequence[str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """One case for each invariant of `engine`, `"module:attribute"`, as the argument `invariant`.

    The test calls `invariant.check()`. The engine runs in a process of its own that imports what
    pytest can and what lies beside the file of tests. It is judged once, by the first case that
    runs. `expected_failures` is a file, seen from the folder of the file of tests. What leads
    nowhere is one error of the file of tests.
    """
    from medusa_spec.registry import CONTRACTS

    # With `--import-mode=importlib` nothing but the test's own file says where its folder is.
    file = sys._getframe(1).f_globals.get("__file__")
    beside = os.path.dirname(os.path.abspath(file)) if file else os.getcwd()
    rule = _amiss(engine, beside, seed, max_examples, timeout, contracts)
    if rule is not None:
        raise pytest.Collector.CollectError(f"parametrize_with_invariants: {rule}")
    _look_for(engine, beside)
    expected = None if expected_failures is None else os.path.join(beside, expected_failures)
    chosen = CONTRACTS if contracts is None else tuple(c for c in CONTRACTS if c in contracts)
    asked = Asked(engine, beside, seed, max_examples, timeout, expected, chosen)
    parameters = [pytest.param(case, id=case.code) for case in cases(asked)]
    return pytest.mark.parametrize("invariant", parameters)


def _amiss(
    engine: Any, beside: str, seed: Any, max_examples: Any, timeout: Any, contracts: Any
) -> str | None:
    """What is wrong with arguments, which any file of tests may give; `None` where nothing is."""
    from medusa_spec.registry import CONTRACTS

    rule = misnamed(engine, Path(beside)) if isinstance(engine, str) else "is no string"
    if rule is not None:
        return f"{engine!r} {rule}"
    for name, value, kind, (least, greatest) in (
        ("seed", seed, int, SEEDS),
        ("max_examples", max_examples, int, EXAMPLES),
        ("timeout", timeout, int | float, SECONDS),
    ):
        if not isinstance(value, kind) or not least <= value <= greatest:
            return f"{name}={value!r} is no number from {least} to {greatest}"
    several = isinstance(contracts, Collection) and not isinstance(contracts, str)
    if contracts is None or (several and contracts and all(c in CONTRACTS for c in contracts)):
        return None
    return f"contracts={contracts!r} is no list of contracts; there are {', '.join(CONTRACTS)}"
