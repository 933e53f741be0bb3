"""The pytest plugin: `pytest --medusa-engine module:attribute`, and cases for a file of tests.

Loaded with every session of pytest, so it imports nothing of the suite before an engine is named.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from medusa_conformance.cases import Case

OPTION = "--medusa-engine"

SEED, MAX_EXAMPLES, TIMEOUT = 0, 60, 30.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, in a group of their own."""
    group = parser.getgroup("medusa", "medusa-oracles: judge a Medusa engine")
    group.addoption(
        OPTION, metavar="MODULE:ATTRIBUTE", help="one test for each invariant of this engine"
    )
    group.addoption("--medusa-seed", type=int, default=SEED, help="of the drawn coordinates")
    group.addoption(
        "--medusa-max-examples",
        type=int,
        default=MAX_EXAMPLES,
        help="random coordinates, besides the frozen ones",
    )
    group.addoption(
        "--medusa-timeout",
        type=float,
        default=TIMEOUT,
        help="seconds that the engine has for each reply",
    )
    group.addoption(
        "--medusa-expected-failures", metavar="FILE", help="a YAML list of what fails today"
    )


class InvariantItem(pytest.Item):
    """One invariant of the engine that was named; its id is the invariant's code."""

    case: Case

    def runtest(self) -> None:
        """Judge the engine where nobody has yet, and tell of this invariant."""
        self.case.check()

    def reportinfo(self) -> tuple[Path, None, str]:
        """What a report calls it."""
        return self.config.rootpath, None, self.nodeid


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the invariants first, so that `-k` chooses among them as among all others."""
    engine = config.getoption(OPTION)
    if engine is None:
        return
    from medusa_spec.registry import CONTRACTS

    for case in _cases(config, CONTRACTS):
        item = InvariantItem.from_parent(session, name=case.code, nodeid=f"medusa::{case.code}")
        item.case = case
        items.append(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Judge no contract of which no invariant was chosen."""
    chosen = [item for item in session.items if isinstance(item, InvariantItem)]
    if not chosen:
        return
    from medusa_spec.registry import CONTRACTS, invariants

    rules = [invariants()[item.name] for item in chosen if item.name in invariants()]
    wanted = {rule.contract for rule in rules} or set(CONTRACTS)
    contracts = tuple(name for name in CONTRACTS if name in wanted)
    by_code = {case.code: case for case in _cases(session.config, contracts)}
    for item in chosen:
        item.case = by_code[item.name]


def _cases(config: pytest.Config, contracts: Sequence[str]) -> list[Case]:
    from medusa_conformance.cases import Asked, cases

    expected = config.getoption("--medusa-expected-failures")
    return cases(
        Asked(
            config.getoption(OPTION),
            str(config.invocation_params.dir),
            config.getoption("--medusa-seed"),
            config.getoption("--medusa-max-examples"),
            config.getoption("--medusa-timeout"),
            None if expected is None else str(config.invocation_params.dir / expected),
            tuple(contracts),
        )
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

    The test calls `invariant.check()`. The engine runs in a process of its own, in the folder from
    which pytest finds its module, and is judged once, by the first case that runs.
    """
    from medusa_conformance.cases import Asked, cases
    from medusa_spec.registry import CONTRACTS

    expected = None if expected_failures is None else os.fspath(expected_failures)
    chosen = CONTRACTS if contracts is None else tuple(contracts)
    # With `--import-mode=importlib` nothing but the test's own file says where its folder is.
    file = sys._getframe(1).f_globals.get("__file__")
    beside = os.path.dirname(os.path.abspath(file)) if file else os.getcwd()
    asked = Asked(engine, beside, seed, max_examples, timeout, expected, chosen)
    parameters = [pytest.param(case, id=case.code) for case in cases(asked)]
    return pytest.mark.parametrize("invariant", parameters)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Name a folder to each worker of pytest-xdist, so that they judge an engine once together."""
    if not hasattr(node.config, "medusa_shared"):
        node.config.medusa_shared = tempfile.mkdtemp(prefix="medusa-")
    node.workerinput["medusa_shared"] = node.config.medusa_shared


def pytest_configure(config: pytest.Config) -> None:
    """Take the folder that a controller of pytest-xdist has named, and no other session's."""
    os.environ.pop("MEDUSA_SHARED", None)
    shared = getattr(config, "workerinput", {}).get("medusa_shared")
    if shared is not None:
        os.environ["MEDUSA_SHARED"] = shared


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder when its workers are gone."""
    if hasattr(config, "medusa_shared"):
        shutil.rmtree(config.medusa_shared, ignore_errors=True)
