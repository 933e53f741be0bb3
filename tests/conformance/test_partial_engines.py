"""An engine of some stages: it is judged for what it has, and for nothing that stands in for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import pytest

from medusa_conformance.runner import (
    Factory,
    Setting,
    Tally,
    judge_coordinates,
    reference_factory,
)
from medusa_conformance.verdicts import stage_of
from medusa_manifests import load
from medusa_mutations import mutations
from medusa_oracles import oracles
from medusa_spec.coordinate import Coordinate
from medusa_spec.stages import STAGES

SETTING = Setting("cpu", "float64")
SHOWN = (
    *("six-node", "own-acceptance-typical", "regular-3-2-2"),
    *("two-heads", "law-rejection", "checkpoint-independent", "cost-shared-heads"),
)

HANDED_ON = {"proposal.packed", "selection.path", "selection.accepted"}
"""What stands in a trace in the place of a stage that is not there, for those behind it."""

GIVEN = {
    "frontier.target",
    "frontier.heads",
    "round.tokens",
    "generation.prefix",
    "generation.asked",
    "chain.path",
    "selection.candidates",
    "selection.path_logits",
    "selection.refused",
    "round.refused",
    "refusal.asked",
}
"""What the judge gives, or writes down where nothing was refused."""


class Partial:
    """An engine of which only some stages are shown."""

    def __init__(self, engine: Any, stages: Collection[str]) -> None:
        self._engine, self._stages = engine, stages

    def __getattr__(self, name: str) -> Any:
        if name in STAGES and name not in self._stages:
            raise AttributeError(name)
        return getattr(self._engine, name)


def judged(stages: Collection[str], mutant: str = "", names: Collection[str] = SHOWN) -> Tally:
    make: Factory = reference_factory(SETTING, mutations()[mutant] if mutant else None)

    def partial(coordinate: Coordinate, capacity: int) -> Partial:
        return Partial(make(coordinate, capacity), stages)

    return judge_coordinates(partial, map(load, names), SETTING)


@cache
def whole() -> Mapping[str, int]:
    return judged(frozenset(STAGES)).executed


SUBSETS = {
    **{f"{stage} alone": {stage} for stage in STAGES},
    **{f"no {stage}": set(STAGES) - {stage} for stage in STAGES},
    "buffers and candidates": {"compile_tree", "propose", "select"},
    "a tree pass": {"prefill", "verify", "forward"},
    "a cache": {"prefill", "verify", "commit", "cache"},
    "a black box": {"generate", "forward"},
}


@pytest.mark.parametrize("name", SUBSETS)
def test_it_is_judged_for_its_own_stages_alone(name: str) -> None:
    stages = SUBSETS[name]
    tally = judged(stages)
    assert [(found.finding.code, found.finding.message) for found in tally.findings] == []
    assert tally.crashes == []
    assert tally.executed.keys() <= whole().keys()
    unseen = GIVEN | {read for read in HANDED_ON if stage_of(read) not in stages}
    for code in tally.executed:
        entry = oracles()[code]
        alternatives = [set(entry.needs)] + ([set(entry.instead)] if entry.instead else [])
        own = [needs - unseen for needs in alternatives if needs <= tally.seen]
        shown = [{stage_of(read) for read in needs} for needs in own]
        assert any(of <= stages for of in shown), f"{code} reads what no stage of it has said"
        # `refused` is an answer, too: of whatever was asked.
        refusal = any("refused" in read for needs in alternatives for read in needs)
        assert refusal or any(shown), f"{code} judges nothing but what it was given"


@pytest.mark.parametrize(
    ("stages", "rules"),
    [
        ("node_count verify commit cache", 0),
        ("prefill forward", 1),
        ("label", 2),
        ("propose", 4),
        # Its length and end, and by tokens alone: another tree, a part of it, a used engine.
        ("generate", 5),
        ("compile_tree", 9),
        ("admit", 12),
        ("select", 13),
    ],
)
def test_one_stage_exercises_as_many_rules_as_read_its_answers(stages: str, rules: int) -> None:
    for stage in stages.split():
        # On a tree that has no branching factors: a node count is asked of none.
        assert len(judged({stage}, names=SHOWN[:2]).executed) == rules


KILLED = [
    ("admit", "slot-is-row"),
    ("apply_heads", "sibling-visible"),
    ("align_heads", "gather-off-by-one"),
    ("search_tree", "root-invisible"),
    ("law", "sum-for-product"),
    ("sample", "distance-without-the-half"),
    ("train_step", "head-offset-one"),
    ("save_checkpoint", "residual-dropped"),
    ("load_checkpoint", "topk-ascending"),
    ("cost", "position-from-row"),
    ("publish_claims", "boolean-mask-added"),
    ("compile_tree", "self-aligned-logits"),
    ("node_count", "retrieval-not-a-chain"),
    ("prefill", "max-for-min"),
    ("propose", "stale-mask-of-previous-tree"),
    ("verify", "greater-or-equal"),
    ("select", "padding-reads-last-row"),
    ("label", "aliased-copy"),
    ("commit", "wide-tree-capped"),
    ("cache", "last-maximal-path"),
    ("forward", "first-layer-only"),
    ("generate", "keys-without-values"),
]


@pytest.mark.parametrize(("missing", "mutant"), KILLED)
def test_a_mutant_is_killed_for_want_of_another_stage_too(missing: str, mutant: str) -> None:
    mutation = mutations()[mutant]
    tally = judged(set(STAGES) - {missing}, mutant, [mutation.exposed_by])
    assert tally.failed[mutation.killer]


def test_each_stage_is_missed_once() -> None:
    assert [missing for missing, _ in KILLED] == list(STAGES)


def test_a_black_box_begins_behind_another_generation() -> None:
    tally = judged({"generate", "forward"}, "restart-reuses-same-length-prompt", ["six-node"])
    assert tally.failed["ROUND.RESTARTABLE"]


@pytest.mark.parametrize(
    ("mutant", "name", "code"),
    [
        ("causal-triangle-for-tree", "earlier-alike", "ROUND.TREE_INDEPENDENT"),
        ("wide-tree-capped", "own-acceptance", "ROUND.SUPERSET_NEVER_SHORTER"),
        ("restart-reuses-same-length-prompt", "six-node", "ROUND.RESTARTABLE"),
    ],
)
def test_a_black_box_without_a_plain_pass_is_found_out_by_its_tokens(
    mutant: str, name: str, code: str
) -> None:
    assert judged({"generate"}, mutant, [name]).failed[code]
