"""Every mutant dies by the rule that it breaks, on frozen coordinates; nothing else is a kill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from medusa_conformance import runner
from medusa_conformance.reports import mutant_result
from medusa_conformance.runner import MutantResult, Setting, judge_mutant
from medusa_manifests import load
from medusa_mutations import Mutation, coordinate, heads, mutations
from medusa_mutations import tree as broken_tree
from medusa_reference_engine.heads import HeadTensors
from medusa_reference_engine.tree import TreeStage
from medusa_spec.registry import SIGHTS, invariants

SETTING = Setting("cpu", "float64")


def made_up(stage: type[Any], killer: str) -> Mutation:
    """A mutation that no catalog lists."""
    contract = killer.split(".")[0].lower()
    return Mutation(
        "made-up", contract, "0x00", killer, "article", "six-node", "anything", "anything", stage
    )


def hunt(stage: type[Any], killer: str, *names: str) -> MutantResult:
    """Judge a made-up mutation on frozen coordinates."""
    return judge_mutant(made_up(stage, killer), [load(name) for name in names], SETTING)


@pytest.mark.parametrize("mutation", mutations().values(), ids=lambda m: m.id)
def test_a_mutant_is_killed_on_the_coordinate_that_exposes_it(
    mutation: Mutation,
    monkeypatch: pytest.MonkeyPatch,
    skip_broken_documents: Callable[[str], None],
) -> None:
    skip_broken_documents(mutation.contract)
    result = judge_mutant(mutation, [load(mutation.exposed_by)], SETTING)
    assert (result.status, result.crash, result.examples) == ("killed", None, 1)
    assert mutation.killer in result.fired
    assert mutant_result(result)["killed"] is True


class Sham(TreeStage):
    """The original under another name."""


def test_a_sham_survives_all_that_it_is_shown() -> None:
    result = hunt(Sham, "TREE.SLOT", "six-node", "chain-three")
    assert result == MutantResult("made-up", "survived", (), None, 2, None)


class CrashingTree(TreeStage):
    def slot(self, path: tuple[int, ...], row: int, topk: int) -> int:
        raise IndexError("no such slot")


def test_a_crash_is_incompetence() -> None:
    result = hunt(CrashingTree, "TREE.SLOT", "six-node", "chain-three")
    assert (result.status, result.examples) == ("incompetent", 1)
    assert result.crash == "IndexError: no such slot in tree on six-node"


class CountsUntilThreeHeads(heads.CountForgetsBiases):
    def count(self, held: HeadTensors) -> int:
        if len(held.weight) == 3:
            raise ArithmeticError("three heads")
        return super().count(held)


def test_a_crash_after_the_kill_is_incompetence() -> None:
    killer = "HEADS.PARAMETER_COUNT"
    two_heads, three_heads = "six-node", "regular-3-2-2"
    assert (load(two_heads).heads, load(three_heads).heads) == (2, 3)
    assert hunt(CountsUntilThreeHeads, killer, two_heads).status == "killed"
    result = hunt(CountsUntilThreeHeads, killer, two_heads, three_heads)
    assert (result.status, result.fired, result.examples) == ("incompetent", (killer,), 2)
    assert result.crash == f"ArithmeticError: three heads in heads on {three_heads}"


class CrashesOnAProbe(coordinate.DomainAliasSlotRow):
    def prefix_length(self, document: Mapping[str, Any]) -> int:
        if document["prefix_length"] != len(document["prefix"]):
            raise ZeroDivisionError("a length of another prefix")
        return super().prefix_length(document)


def test_a_crash_in_the_line_of_the_kill_is_incompetence() -> None:
    killer = "COORDINATE.DOMAINS"
    assert hunt(coordinate.DomainAliasSlotRow, killer, "six-node").status == "killed"
    result = hunt(CrashesOnAProbe, killer, "six-node")
    assert (result.status, result.fired) == ("incompetent", (killer,))
    assert result.crash == "ZeroDivisionError: a length of another prefix in admission on six-node"


def test_what_another_rule_finds_is_no_kill() -> None:
    result = hunt(broken_tree.SlotIsRow, "HEADS.OFFSET", "six-node", "chain-three")
    assert (result.status, result.examples, result.crash) == ("survived", 2, None)
    assert "TREE.SLOT" in result.fired
    assert "HEADS.OFFSET" not in result.fired


def test_codes_that_fired_stand_in_registry_order_and_the_shallowest_sight_counts() -> None:
    result = hunt(broken_tree.SlotIsRow, "TREE.SLOT", "six-node", "own-acceptance")
    order = [code for code in invariants() if code in result.fired]
    assert list(result.fired) == order
    assert len(order) > 1
    sights = [SIGHTS.index(invariants()[code].sight) for code in order]
    assert result.depth == SIGHTS[min(sights)]


def test_a_kill_is_looked_at_a_little_longer_for_a_shallower_sight() -> None:
    killer = "HEADS.PARAMETER_COUNT"
    names = ["six-node"] * (1 + runner.PATIENCE)
    # The coordinate with three heads crashes this mutant: it comes into sight or it does not.
    beyond = hunt(CountsUntilThreeHeads, killer, *names, "regular-3-2-2")
    within = hunt(CountsUntilThreeHeads, killer, *names[1:], "regular-3-2-2")
    assert (beyond.status, beyond.examples) == ("killed", 1)
    assert within.status == "incompetent"
