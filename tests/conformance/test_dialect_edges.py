"""Dialects at their edges: all at once, on drawn coordinates, not spoken, and corrupt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from medusa_conformance.runner import random_coordinates
from medusa_manifests import load
from medusa_mutations import mutations
from medusa_reference_engine import ReferenceEngine, Stages
from medusa_reference_engine.tree import TreeStage
from medusa_spec.coordinate import Coordinate
from medusa_spec.dialect import CANONICAL, Dialect
from medusa_spec.stages import STAGES

EVERYTHING: dict[str, Any] = {
    "policy": {"retrieval_order": "pinned", "sentinel": -2, "entropy_guard": 1e-3},
    "choices": "leaves",
    "node_order": "own",
    "mask": "packed32",
    "mask_root": "absent",
    "positions": "relative",
    "slots": 10,
    "retrieval": "own",
    "pad_token": 0,
    "accepted": "with-bonus",
    "posterior_input": "probabilities",
    "topk_ties": "any",
    "kv_move": "lazy",
    "labels": "pre-shifted",
    "end_of_sequence": "loop",
    "refusals": "any-error",
}
WITH_OTHERS = EVERYTHING | {"mask": "additive", "slots": "own", "accepted": "with-root"}
SILENT = {
    "COMMIT.ALL_LAYERS",
    "COMMIT.SNAPSHOT",
    "COMMIT.PREFIX_UNTOUCHED",
    "ROUND.CACHE_MATCHES_TOKENS",
}
SLOTS = {"TREE.SLOT", "TREE.INVERSE", "TREE.DUPLICATE_TOKENS"}


@pytest.fixture(scope="module")
def drawn() -> list[Coordinate]:
    # Among them are a root alone, no heads, an earlier generation, an end, and regular trees.
    return random_coordinates(20, 3)


@pytest.mark.parametrize(("form", "silent"), [(EVERYTHING, SILENT), (WITH_OTHERS, SILENT | SLOTS)])
def test_all_forms_at_once_on_drawn_coordinates(
    form: dict[str, Any], silent: set[str], engines: Any, drawn: list[Coordinate]
) -> None:
    plain = engines.judged(engines.speaker(CANONICAL), CANONICAL, drawn)
    spoken = engines.dialect(form)
    tally = engines.judged(engines.speaker(spoken), spoken, drawn)
    assert [(found.finding.code, found.finding.message) for found in tally.findings] == []
    assert tally.crashes == []
    assert plain.executed.keys() - tally.executed.keys() == silent


@pytest.mark.parametrize("hidden", [-np.inf, float(np.finfo(np.float16).min), -1e4])
def test_an_additive_mask_hides_with_any_number_far_below(hidden: float, engines: Any) -> None:
    spoken = Dialect(mask="additive")
    tally = engines.judged(
        engines.speaker(spoken, hidden=hidden), spoken, [load("six-node"), load("root-only")]
    )
    assert (tally.failed, tally.crashes) == ({}, [])


@pytest.mark.parametrize("hidden", [-1.0, 0.0, 1.0])
def test_an_additive_mask_that_hides_nothing_is_found(hidden: float, engines: Any) -> None:
    spoken = Dialect(mask="additive")
    tally = engines.judged(engines.speaker(spoken, hidden=hidden), spoken, [load("six-node")])
    assert tally.failed["TREE.MASK_IS_ANCESTRY"]


class DepthFirst(TreeStage):
    """Rows as a recursion meets them, and with them slots, masks, caches and retrieval rows."""

    def row_order(self, paths: Any) -> Any:
        return [(), *sorted(paths)]


def test_an_engine_may_really_lay_its_tree_out_depth_first(
    engines: Any, drawn: list[Coordinate]
) -> None:
    def make(given: Coordinate, capacity: int) -> Any:
        stages = Stages(tree=DepthFirst)
        return ReferenceEngine.seeded(given.model, given.heads, capacity, stages=stages)

    spoken = Dialect(node_order="own", retrieval="own")
    tally = engines.judged(make, spoken, drawn)
    assert (tally.failed, tally.crashes) == ({}, [])
    assert engines.judged(make, CANONICAL, drawn).failed["TREE.ROW_ORDER"]


def test_a_forward_pass_of_less_precision_is_granted_that_much(engines: Any) -> None:
    shown = [load("six-node"), load("own-acceptance-typical")]
    for dtype in ("float32", "bfloat16"):
        spoken = Dialect(dtype=dtype)
        assert engines.judged(engines.speaker(spoken), spoken, shown).failed == {}
        assert engines.judged(engines.speaker(spoken), CANONICAL, shown).failed
        wrong = engines.speaker(spoken, mutations()["sibling-visible"])
        assert engines.judged(wrong, spoken, shown).failed["VERIFICATION.PATH_LOGITS"]


UNSPOKEN: dict[str, dict[str, Any]] = {
    "TREE.MASK_IS_ANCESTRY additive": {"mask": "additive"},
    "TREE.MASK_IS_ANCESTRY packed8": {"mask": "packed8"},
    "TREE.MASK_IS_ANCESTRY packed64": {"mask": "packed64"},
    "TREE.MASK_IS_ANCESTRY root": {"mask_root": "absent"},
    "VERIFICATION.POSITION": {"positions": "relative"},
    "TREE.SLOT": {"slots": 10},
    "PROPOSAL.GATHER": {"slots": 10},
    "POSTERIOR.CONTIGUOUS_PREFIX": {"accepted": "with-root"},
    "COMMIT.PUBLISHED_COUNT": {"accepted": "with-bonus"},
    "POSTERIOR.TEMPERATURE": {"posterior_input": "probabilities"},
    "POSTERIOR.SENTINEL": {"pad_token": 0},
    "HEADS.OFFSET": {"labels": "pre-shifted"},
}


@pytest.mark.parametrize("name", UNSPOKEN)
def test_a_dialect_that_is_declared_and_not_spoken_is_found(name: str, engines: Any) -> None:
    shown = [load(each) for each in ("six-node", "rank-gaps", "posterior-fast-typical")]
    tally = engines.judged(engines.speaker(CANONICAL), Dialect(**UNSPOKEN[name]), shown)
    assert tally.failed[name.partition(" ")[0]]
    assert [crash for _, crash in tally.crashes if crash.kind != "crash"] == []


@pytest.mark.parametrize("choices", ["leaves", "branching"])
def test_choices_that_are_not_understood_are_a_crash_of_the_engine(
    choices: Any, engines: Any
) -> None:
    declared = Dialect(choices=choices)
    tally = engines.judged(engines.speaker(CANONICAL), declared, [load("regular-3-2-2")])
    assert {(crash.kind, crash.stage) for _, crash in tally.crashes} == {("crash", "compile_tree")}


def test_a_tree_without_branching_factors_is_declined_and_not_asked_for(engines: Any) -> None:
    spoken = Dialect(choices="branching")
    irregular, regular = (
        engines.judged(engines.speaker(spoken), spoken, [load(name)])
        for name in ("six-node", "regular-3-2-2")
    )
    assert not any(code.startswith("TREE.") for code in irregular.executed)
    assert irregular.record.calls["compile_tree"] == 0
    (reason,) = irregular.record.unsupported["compile_tree"]
    assert "branching" in reason
    assert (regular.failed, regular.record.unsupported) == ({}, {})
    assert regular.executed["TREE.SLOT"]
    assert regular.executed["ROUND.CHAIN_IS_CHAIN"]


class Corrupt:
    """An engine one field of whose answers to one stage is made something else."""

    def __init__(self, engine: Any, stage: str, field: str, number: int) -> None:
        self._engine, self._stage, self._field, self._number = engine, stage, field, number

    def __getattr__(self, name: str) -> Any:
        stage = getattr(self._engine, name)

        def call(*given: Any) -> Any:
            answer = stage(*given)
            if name != self._stage:
                return answer
            names = [f.name for f in fields(STAGES[name].answer)]
            whole = answer if isinstance(answer, dict) else {n: getattr(answer, n) for n in names}
            wrong = list(odd(whole[self._field]))
            return {**whole, self._field: wrong[self._number % len(wrong)]}

        return call


def odd(value: Any) -> Iterator[Any]:
    """Values of which none is the one that was owed."""
    if is_dataclass(value):
        yield None
    elif isinstance(value, tuple):
        yield from ((), value[::-1][:-1], value + value, ((9, 9),) * len(value))
    elif isinstance(value, int | np.integer):
        yield from (-5, 10**6)
    else:
        array = np.asarray(value)
        yield from (array[:0], array[:-1], array[None, None], array.reshape(-1)[None, :-1])
        yield from (array * 0.5 + 0.25, np.full(array.shape, 10**9), np.full(array.shape, -7.0))
        yield from (np.array(3), np.full(array.shape, np.nan))


ANSWERED = [
    (stage, f.name)
    for stage in ("compile_tree", "propose", "verify", "select", "commit", "cache")
    for f in fields(STAGES[stage].answer)
    if f.name != "frontier"
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("stage", "field"), ANSWERED)
def test_a_corrupt_answer_is_found_and_no_fault_of_the_translation(
    stage: str, field: str, engines: Any
) -> None:
    def judged(declared: Dialect, number: int) -> Any:
        make = engines.speaker(declared)

        def corrupt(given: Coordinate, capacity: int) -> Corrupt:
            return Corrupt(make(given, capacity), stage, field, number)

        # Padding, ranks that are left out, and two paths of one length.
        name = "posterior-fast-typical" if stage == "select" else "rank-gaps"
        return engines.judged(corrupt, declared, [load(name)])

    def unusable(tally: Any) -> set[str]:
        return {crash.section for _, crash in tally.crashes if crash.kind == "rubbish"}

    # Of these two an exception is no crash, and the cache is not looked at.
    judged_whole = {"refusals": "refused", "kv_move": "eager"}
    spoken = engines.dialect(EVERYTHING | judged_whole)
    for number in range(9):
        tally = judged(spoken, number)
        # What the line cannot hand on from a canonical answer, it cannot from another either.
        assert not unusable(tally) or unusable(tally) <= unusable(judged(CANONICAL, number))
        assert tally.failed or unusable(tally)
