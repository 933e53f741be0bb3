"""Which sections of the line are run for which contracts."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from medusa_conformance.isolation import Missing
from medusa_conformance.line import SECTIONS
from medusa_conformance.runner import (
    Setting,
    frozen_coordinates,
    judge_coordinates,
    line_of,
    random_coordinates,
    reference_factory,
)
from medusa_manifests import load
from medusa_oracles import judge
from medusa_spec import Refused
from medusa_spec.coordinate import Coordinate
from medusa_spec.registry import CONTRACTS, of_contract
from medusa_spec.trace import Trace

SETTING = Setting("cpu", "float64")


class Modelless:
    """The engine without the stages of a model, whose selections are asked by themselves."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        if name in ("prefill", "verify"):
            raise AttributeError(name)
        return getattr(self._engine, name)


@cache
def exercised() -> dict[str, set[str]]:
    """The contracts whose rules the traces of each section exercise, over many coordinates."""
    small = [c for c in frozen_coordinates() if c.nodes <= 12]
    make = reference_factory(SETTING)
    found: dict[str, set[str]] = {section.__name__: set() for section, _ in SECTIONS}
    for hidden in (False, True):
        for coordinate in (*small, *random_coordinates(6, 5)):

            def engine(given: Coordinate, rows: int, hidden: bool = hidden) -> Any:
                return Modelless(make(given, rows)) if hidden else make(given, rows)

            line = line_of(engine, coordinate, SETTING)
            for section, _ in SECTIONS:
                for code in codes(section(line)):
                    found[section.__name__].add(code.partition(".")[0].lower())
    return found


def codes(traces: Any) -> set[str]:
    executed: set[str] = set()
    # A section ends where a stage that it needs is not there.
    with suppress(Missing):
        for trace in traces:
            assert isinstance(trace, Trace)
            executed |= set(judge(trace).executed)
    return executed


@pytest.mark.parametrize(
    ("section", "contracts"), SECTIONS, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_section_says_which_contracts_it_exercises(section: Any, contracts: Any) -> None:
    assert exercised()[section.__name__] == contracts


def test_every_contract_has_a_section() -> None:
    assert frozenset().union(*(own for _, own in SECTIONS)) == set(CONTRACTS)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_contract_alone_is_judged_as_among_all(contract: str) -> None:
    names = (
        *("six-node", "end-of-sequence", "regular-3-2-2", "padded-batch"),
        *("two-heads", "law-rejection", "checkpoint-joint", "cost-shared-heads", "typed-run"),
    )
    coordinates = [load(name) for name in names]
    everything = judge_coordinates(reference_factory(SETTING), coordinates, SETTING)
    alone = judge_coordinates(
        reference_factory(SETTING), coordinates, Setting("cpu", "float64", (contract,))
    )
    own = {i.code for i in of_contract(contract)}
    assert alone.executed == Counter({c: n for c, n in everything.executed.items() if c in own})
    assert alone.executed


class Broken:
    """A tree builder whose proposals crash."""

    def __init__(self, engine: Any) -> None:
        self.compile_tree = engine.compile_tree

    def propose(self, *_: Any) -> Any:
        raise RuntimeError("not written yet")


def test_what_is_not_asked_for_is_not_asked() -> None:
    def make(coordinate: Coordinate, rows: int) -> Any:
        return Broken(reference_factory(SETTING)(coordinate, rows))

    tree = judge_coordinates(make, [load("six-node")], Setting("cpu", "float64", ("tree",)))
    assert (tree.crashes, set(tree.record.calls)) == ([], {"compile_tree"})
    both = Setting("cpu", "float64", ("tree", "proposal"))
    assert [c.stage for _, c in judge_coordinates(make, [load("six-node")], both).crashes]


class Refusing:
    """An engine that refuses the lawful request for a tree."""

    def compile_tree(self, *_: Any) -> Any:
        raise Refused("no trees today")


@pytest.mark.parametrize("contract", ["tree", "round"])
def test_a_lawful_request_refused_is_found_by_its_section_and_by_the_round(contract: str) -> None:
    setting = Setting("cpu", "float64", (contract,))
    found = judge_coordinates(lambda *_: Refusing(), [load("six-node")], setting)
    assert {f.finding.code for f in found.findings} == {"ROUND.LAWFUL_NEVER_REFUSED"}
