"""The verdict, the counts behind it, and that neither chance nor processes have a say in them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from medusa_conformance import runner
from medusa_conformance.line import Crash
from medusa_conformance.runner import (
    MutantResult,
    Setting,
    Tally,
    Verification,
    judge_coordinates,
    random_coordinates,
    reference_factory,
)
from medusa_manifests import load
from medusa_mutations import mutations
from medusa_reference_engine import ReferenceEngine, Stages
from medusa_reference_engine.commit import CommitStage
from medusa_spec import Coordinate, Refused
from medusa_spec.findings import Verdict
from medusa_spec.registry import CONTRACTS, invariants, of_contract

SETTING = Setting("cpu", "float64")
KILLED = MutantResult("slot-is-row", "killed", ("TREE.SLOT",), "white-box", 1, None)


def result(
    contracts: tuple[str, ...] = CONTRACTS, mutants: tuple[MutantResult, ...] = (), **tally: Any
) -> Verification:
    """A run in which every invariant of every contract was executed, unless told otherwise."""
    counts = {"executed": Counter(invariants().keys())} | tally
    setting = replace(SETTING, contracts=contracts)
    return Verification(setting, 0, Tally(coordinates=1, **counts), mutants, 1.0)


def executed_without(code: str) -> Counter[str]:
    return Counter(other for other in invariants() if other != code)


def test_pass_needs_every_planned_invariant_executed() -> None:
    assert result(mutants=(KILLED,)).verdict is Verdict.PASS


@pytest.mark.parametrize("contract", CONTRACTS)
def test_one_idle_invariant_of_a_chosen_contract_is_inconclusive(contract: str) -> None:
    for invariant in of_contract(contract):
        executed = executed_without(invariant.code)
        assert result((contract,), executed=executed).verdict is Verdict.INCONCLUSIVE
        assert result(executed=executed).verdict is Verdict.INCONCLUSIVE


def test_an_idle_invariant_of_another_contract_does_not_matter() -> None:
    assert result(("tree",), executed=executed_without("HEADS.OFFSET")).verdict is Verdict.PASS


def test_planned_are_the_codes_of_the_chosen_contracts() -> None:
    chosen = result(("tree", "round")).planned
    assert set(chosen) == {i.code for c in ("tree", "round") for i in of_contract(c)}
    assert result().planned == tuple(invariants())


def test_nothing_executed_is_never_a_pass() -> None:
    assert result(executed=Counter()).verdict is Verdict.INCONCLUSIVE
    assert result(contracts=()).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("status", ["survived", "incompetent"])
def test_a_mutant_at_large_fails(status: Any) -> None:
    at_large = replace(KILLED, status=status)
    assert result(mutants=(KILLED, at_large)).verdict is Verdict.FAIL


def test_a_finding_and_a_crash_fail_even_where_something_is_idle() -> None:
    idle = executed_without("TREE.SLOT")
    assert result(executed=idle, failed=Counter(["TREE.MASK_IS_ANCESTRY"])).verdict is Verdict.FAIL
    crash = "six-node", Crash("tree", "crash", "compile_tree", "KeyError: 3")
    assert result(executed=idle, crashes=[crash]).verdict is Verdict.FAIL


def test_exit_codes() -> None:
    assert [Verdict(word).exit_code for word in ("pass", "fail", "inconclusive")] == [0, 1, 2]


def test_the_reference_engine_has_no_finding_and_counts_coordinates() -> None:
    names = ("root-only", "six-node")
    tally = judge_coordinates(reference_factory(SETTING), map(load, names), SETTING)
    assert (tally.coordinates, tally.failed, tally.findings, tally.crashes) == (2, {}, [], [])
    # Each counts coordinates: one with a dozen documents, or with three rounds, counts once.
    assert tally.executed["COORDINATE.LAWFUL_ADMITTED"] == 2
    assert tally.executed["TREE.SLOT"] == 2
    assert tally.executed["TREE.NODE_COUNT"] == 0


def test_a_finding_is_located_and_counted_once_for_its_coordinate() -> None:
    factory = reference_factory(SETTING, mutations()["slot-is-row"])
    coordinate = load("six-node")
    tally = judge_coordinates(factory, [coordinate], replace(SETTING, contracts=("tree",)))
    assert tally.failed["TREE.SLOT"] == 1
    assert set(tally.executed) == {i.code for i in of_contract("tree")} - {"TREE.NODE_COUNT"}
    assert all(located.coordinate == coordinate for located in tally.findings)
    assert "TREE.SLOT" in {located.finding.code for located in tally.findings}


def test_a_finding_in_a_round_says_which() -> None:
    factory = reference_factory(SETTING, mutations()["proposal-from-stale-frontier"])
    coordinate = load("own-acceptance")
    assert len(coordinate.rounds) > 1
    assert coordinate.earlier is None
    tally = judge_coordinates(factory, [coordinate], replace(SETTING, contracts=("proposal",)))
    # In the first round there is no older frontier to read.
    assert {(f.generation, f.round) for f in tally.findings} == {(1, 1)}


def test_the_first_finding_of_each_code_on_each_coordinate_is_kept() -> None:
    # Three rounds, and the slots of each are wrong.
    factory = reference_factory(SETTING, mutations()["gather-off-by-one"])
    names = ["six-node", "own-acceptance"]
    tally = judge_coordinates(factory, map(load, names), SETTING)
    kept = [(located.coordinate.name, located.finding.code) for located in tally.findings]
    assert Counter(code for _, code in kept) == tally.failed
    assert len(kept) == len(set(kept))
    gathers = [f for f in tally.findings if f.finding.code == "PROPOSAL.GATHER"]
    assert [(f.coordinate.name, f.generation, f.round) for f in gathers] == [
        (name, 0, 0) for name in names
    ]
    other = judge_coordinates(factory, [load("chain-three")], SETTING)
    tally.add(other)
    assert tally.coordinates == 3
    assert tally.findings[-len(other.findings) :] == other.findings
    assert tally.failed["PROPOSAL.GATHER"] == 3


def test_a_crash_is_kept_and_the_line_goes_on() -> None:
    def no_engine(coordinate: Coordinate, capacity: int) -> Any:
        raise LookupError(f"no weights for {coordinate.name}")

    tally = judge_coordinates(no_engine, [load("six-node")], SETTING)
    assert {name for name, _ in tally.crashes} == {"six-node"}
    assert {crash.error for _, crash in tally.crashes} == {"LookupError: no weights for six-node"}
    sections = [crash.section for _, crash in tally.crashes]
    assert len(sections) == len(set(sections))
    assert (sections[0], sections[-1]) == ("admission", "generation")
    assert {"heads", "tree", "decoding"} <= set(sections)
    assert tally.executed == {}
    assert Verification(SETTING, 0, tally, (), 1.0).verdict is Verdict.FAIL


def test_a_refusal_of_what_is_lawful_is_a_finding_and_no_crash() -> None:
    def unwilling(coordinate: Coordinate, capacity: int) -> Any:
        raise Refused("not today")

    tally = judge_coordinates(unwilling, [load("six-node")], SETTING)
    assert tally.crashes == []
    assert set(tally.failed) == {"ROUND.LAWFUL_NEVER_REFUSED"}


SAMPLED = """
import hashlib, json
from medusa_conformance.runner import random_coordinates
documents = [coordinate.document() for coordinate in random_coordinates(12, 3)]
print(hashlib.sha256(json.dumps(documents).encode()).hexdigest())
"""


def test_coordinates_of_one_seed_are_the_same_in_another_process(python: Any) -> None:
    documents = [coordinate.document() for coordinate in random_coordinates(12, 3)]
    ours = hashlib.sha256(json.dumps(documents).encode()).hexdigest()
    assert python("-c", SAMPLED).stdout.strip() == ours


def test_more_examples_begin_with_the_fewer_and_another_seed_draws_others() -> None:
    assert random_coordinates(12, 3)[:5] == random_coordinates(5, 3)
    assert random_coordinates(5, 3) != random_coordinates(5, 4)


def test_the_same_coordinates_give_the_same_tally() -> None:
    factory = reference_factory(SETTING, mutations()["head-order-swapped"])
    coordinates = [load("six-node"), *random_coordinates(3, 0)]
    first, second = (judge_coordinates(factory, coordinates, SETTING) for _ in range(2))
    assert first.failed
    assert first == second


@pytest.fixture
def short_run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A whole run of one contract over few coordinates, in so many processes."""
    # What is run is chosen in this process, so that the others need not know of the change.
    few = [load("six-node"), load("own-acceptance")]
    monkeypatch.setattr(runner, "frozen_coordinates", lambda: few)
    monkeypatch.setattr(runner, "CHUNK", 2)

    def run(workers: int, told: list[tuple[str, int, int]]) -> Verification:
        setting = replace(SETTING, contracts=("proposal",))
        return runner.verify(setting, 5, 3, workers, lambda *step: told.append(step))

    return run


def test_the_number_of_processes_changes_nothing(short_run: Any) -> None:
    told: list[tuple[str, int, int]] = []
    one, two = short_run(1, told), short_run(2, [])
    assert replace(one, seconds=0.0) == replace(two, seconds=0.0)
    assert one.verdict is Verdict.PASS
    assert one.tally.coordinates == 5
    proposals = [m.id for m in mutations().values() if m.contract == "proposal"]
    assert [mutant.mutation_id for mutant in one.mutants] == proposals
    total = len(proposals) + 3
    assert [step[1:] for step in told] == [(done, total) for done in range(1, total + 1)]
    assert {what for what, _, _ in told} == {*proposals, "reference engine"}


@pytest.mark.parametrize("contracts", ["tree", ("tree", "trees")])
def test_a_setting_names_contracts(contracts: Any) -> None:
    with pytest.raises(ValueError, match="is no contract"):
        Setting("cpu", "float64", contracts)


class RefusesWideTrees(CommitStage):
    def reserve(self, cache: Any, nodes: int) -> None:
        raise Refused("no")


def test_a_refused_round_fails_whatever_the_contracts() -> None:
    def factory(coordinate: Any, capacity: int) -> Any:
        stages = Stages(commit=RefusesWideTrees)
        return ReferenceEngine.seeded(coordinate.model, coordinate.heads, capacity, stages=stages)

    # Those of a tree ask for no round.
    setting = Setting("cpu", "float64", ("posterior",))
    tally = judge_coordinates(factory, [load("six-node")], setting)
    assert set(tally.failed) == {"ROUND.LAWFUL_NEVER_REFUSED"}
    assert tally.findings[0].finding.observed == "no"
