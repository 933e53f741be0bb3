"""Whole decoding in any order of steps: the oracles find nothing, and find what is planted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from medusa_conformance.crafted import greedy
from medusa_conformance.generation import generated
from medusa_conformance.incident import Incident
from medusa_conformance.line import Line
from medusa_conformance.refusal import refusal
from medusa_conformance.rounds import Round
from medusa_conformance.strategies import acceptances, coordinates, trees
from medusa_manifests import tolerance
from medusa_oracles import judge
from medusa_oracles.judge import beyond
from medusa_reference_engine.commit import CommitStage
from medusa_reference_engine.engine import ReferenceEngine, Stages
from medusa_reference_engine.round import RoundStage
from medusa_reference_engine.verification import VerificationStage
from medusa_spec import Coordinate, Refused
from medusa_spec.coordinate import Acceptance
from medusa_spec.trace import Trace

PREFIXES = st.lists(st.integers(0, 3), min_size=1, max_size=6)


def still_decoding(machine: Any) -> bool:
    return not machine.ended


class Decoding(RuleBasedStateMachine):
    """One engine, any number of generations. Behind `base` every token was the engine's own."""

    stages: ClassVar[Stages] = Stages()
    reached: ClassVar[Counter[str]] = Counter()

    @initialize(
        coordinate=coordinates(),
        spare=st.sampled_from((0, 30)),
        end=st.none() | st.integers(0, 3),
    )
    def begin(self, coordinate: Coordinate, spare: int, end: int | None) -> None:
        # Rounds are steered one by one here, and a capacity of few rows fills up on its own.
        self.coordinate = replace(
            coordinate.with_tree(coordinate.paths),
            ranking=None,
            posterior=(),
            earlier=None,
            capacity=coordinate.capacity + spare,
            end_of_sequence=end,
        )

        def make(given: Coordinate, capacity: int) -> ReferenceEngine:
            return ReferenceEngine.seeded(given.model, given.heads, capacity, stages=self.stages)

        self.line = Line(self.coordinate, make, tolerance("float64"), tolerance("policy"))
        self.engine = self.line.engine()
        self.restart(list(coordinate.prefix))

    @rule(prefix=PREFIXES)
    def restart(self, prefix: list[int]) -> None:
        if len(prefix) > self.coordinate.capacity:
            return self.refuses(
                "a prefix longer than the cache", partial(self.engine.prefill, prefix)
            )
        self.frontier = self.engine.prefill(prefix)
        self.tokens, self.ended = list(prefix), False
        return self.count_from_here()

    @rule(surplus=st.integers(1, 3))
    def prefill_too_long(self, surplus: int) -> None:
        prefix = [0] * (self.coordinate.capacity + surplus)
        self.refuses("a prefix longer than the cache", partial(self.engine.prefill, prefix))

    @precondition(still_decoding)
    @rule()
    def round_of_its_own(self) -> None:
        self.round(None)
        if self.coordinate.policy.mode != "greedy":
            self.count_from_here()

    @rule(data=st.data())
    def change_tree(self, data: st.DataObject) -> None:
        topk, heads, size = self.coordinate.topk, self.coordinate.heads, len(self.coordinate.paths)
        # Of as many nodes, it must still be another tree to the engine.
        grown = trees(topk, heads) | trees(topk, heads, size, size)
        self.coordinate = self.coordinate.with_tree(data.draw(grown))

    @precondition(still_decoding)
    @rule(data=st.data(), change=st.booleans())
    def steered_round(self, data: st.DataObject, change: bool) -> None:
        if change:
            self.change_tree(data)
        self.round(data.draw(acceptances(self.coordinate.paths)))
        self.count_from_here()

    @precondition(still_decoding)
    @rule(paths=st.sampled_from((-1, 0, 1)), surplus=st.integers(1, 2))
    def commit_of_no_path(self, paths: int, surplus: int) -> None:
        tree, packed = self.proposed()
        if self.fits():
            self.engine.verify(tree, packed)
            path = paths if paths <= 0 else len(tree.retrieval)
            edges = int((tree.retrieval[0] >= 0).sum()) - 1
            ask = partial(self.engine.commit, path, edges + surplus if path == 0 else 0, None)
            self.refuses("a commit of what the tree has not", ask)

    @precondition(still_decoding)
    @rule()
    def staged_and_left(self) -> None:
        tree, packed = self.proposed()
        if self.fits():
            self.engine.verify(tree, packed)

    @rule(how_many=st.sampled_from((1, 2, 3, 5, 8, 40)), prefix=PREFIXES)
    def generate(self, how_many: int, prefix: list[int]) -> None:
        coordinate = self.coordinate
        policy, end = greedy(coordinate.policy), coordinate.end_of_sequence
        given = (prefix, how_many, coordinate.paths, coordinate.topk, policy, end)
        if len(prefix) + how_many - 1 + coordinate.nodes > coordinate.capacity:
            asked = "a generation that may not fit"
            return self.refuses(asked, partial(self.engine.generate, *given))
        with self.lawful():
            whole, fresh = self.engine.generate(*given), self.line.engine().generate(*given)
        arrays = {
            **generated("generation", whole),
            **generated("fresh", fresh),
            "generation.asked": np.asarray(how_many),
            "generation.plain_logits": self.engine.forward([*prefix, *whole.tokens]).logits,
        }
        codes = {"ROUND.PROGRESS", "ROUND.RESTARTABLE", "ROUND.GREEDY_EQUALS_PLAIN"}
        self.judged(arrays, {"generation.prefix": tuple(prefix)}, codes, policy=policy)
        return self.restart(prefix)

    @invariant()
    def cache_and_frontier_are_those_of_the_output(self) -> None:
        plain, view = self.engine.forward(self.tokens), self.engine.cache()
        assert view.length == len(self.tokens), "the cache and the output differ in length"
        arrays = {
            "round.visible_kv": view.backing[:, :, :, : view.length],
            "round.fresh_kv": plain.kv,
            "generation.tokens": np.array(self.tokens[self.base :], np.int64),
            "generation.plain_logits": plain.logits,
            # The round that has not come yet begins with the frontier at hand.
            "generation.frontiers": np.array([*self.frontiers, self.frontier.target]),
            "generation.published": np.array([*self.published, 0]),
        }
        documents = {"generation.prefix": tuple(self.tokens[: self.base])}
        codes = {"ROUND.CACHE_MATCHES_TOKENS", "ROUND.FRONTIER_FEEDS_NEXT"}
        self.judged(arrays, documents, codes)
        heads = plain.head_logits[:, -1]
        assert not beyond(heads, self.frontier.heads, tolerance("float64"))

    def round(self, planned: Acceptance | None) -> None:
        """A round through the line, or the refusal of a tree that does not fit."""
        coordinate, before = self.coordinate, len(self.tokens)
        tree, packed = self.proposed()
        if not self.fits():
            asked = "a tree with more rows than are left"
            return self.refuses(asked, partial(self.engine.verify, tree, packed))
        played = Round(self.line, self.engine, coordinate, tree, planned)
        played.documents["round.tokens"] = tuple(self.tokens)
        self.frontiers.append(self.frontier.target)
        with self.lawful():
            self.frontier = played.play(self.frontier, self.tokens)
        self.published.append(len(self.tokens) - before)
        self.ended = self.tokens[-1] == coordinate.end_of_sequence
        self.reached["end of sequence"] += self.ended
        self.reached["accepted edges"] += len(self.tokens) - before - 1
        codes = {"COMMIT.ALL_LAYERS", "VERIFICATION.PATH_LOGITS"}
        self.judged(played.arrays, played.documents, codes)
        return self.refuses("one tree's second commit", partial(self.engine.commit, 0, 0, None))

    def proposed(self) -> tuple[Any, Any]:
        policy = self.coordinate.policy
        tree = self.line.compile(self.engine, self.coordinate)
        given = (tree, self.frontier, self.coordinate.topk, policy.sentinel)
        return tree, self.engine.propose(*given).packed

    def fits(self) -> bool:
        return len(self.tokens) + self.coordinate.nodes <= self.coordinate.capacity

    def count_from_here(self) -> None:
        self.base = len(self.tokens)
        self.frontiers: list[Any] = []
        self.published: list[int] = []

    def refuses(self, asked: str, ask: Callable[[], Any]) -> None:
        self.reached[asked] += 1
        self.findings(refusal(self.line, self.engine, asked, ask), {"COMMIT.VALIDATED_FIRST"})

    @contextmanager
    def lawful(self) -> Iterator[None]:
        """What breaks no rule; its refusal is a finding."""
        try:
            yield
        except Refused as refusal:
            self.judged({}, {"round.refused": str(refusal)}, {"ROUND.LAWFUL_NEVER_REFUSED"})

    def judged(
        self, arrays: dict[str, Any], documents: dict[str, Any], codes: set[str], **more: Any
    ) -> None:
        coordinate = replace(self.coordinate, **more)
        self.findings(self.line.trace(arrays, documents, coordinate=coordinate), codes)

    def findings(self, trace: Trace, codes: set[str]) -> None:
        judgement = judge(trace)
        assert codes <= set(judgement.executed)
        assert not judgement.findings, "; ".join(map(str, judgement.findings))


SETTINGS = settings(
    max_examples=60,
    stateful_step_count=15,
    derandomize=True,
    database=None,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def test_the_reference_engine_keeps_every_rule_in_any_order() -> None:
    Decoding.reached.clear()
    run_state_machine_as_test(Decoding, settings=SETTINGS)
    # Whatever is never reached is watched by nobody.
    assert {what for what, times in Decoding.reached.items() if times} == {
        "end of sequence",
        "accepted edges",
        "a prefix longer than the cache",
        "a commit of what the tree has not",
        "a generation that may not fit",
        "a tree with more rows than are left",
        "one tree's second commit",
    }


def search(stages: Stages) -> None:
    """Decode with other stages, until something is found; shrinking it would prove no more."""
    planted = type("Planted", (Decoding,), {"stages": stages})
    given = settings(SETTINGS, max_examples=300, phases=(Phase.generate,))
    run_state_machine_as_test(planted, settings=given)


class KeysOnly(CommitStage):
    def move(self, cache: Any, source: Any, destination: Any) -> None:
        cache.kv[:, 0, :, destination] = cache.kv[:, 0, :, source]


class MaskOfTheFirstTree(VerificationStage):
    """A buffer that is filled once, and again only where it is too small."""

    first: Any = None

    def rectangular_mask(self, mask: Any, committed: int) -> Any:
        if self.first is None or len(self.first) < len(mask):
            self.first = mask
        return super().rectangular_mask(self.first[: len(mask), : len(mask)], committed)


class GrowsBeforeItChecks(CommitStage):
    def check(self, path: int, accepted: int, tree: Any, cache: Any) -> None:
        cache.length += 1
        super().check(path, accepted, tree, cache)
        cache.length -= 1


class RestartsBehindTheOldRows(RoundStage):
    def prefill(self, tokens: Any, model: Any, session: Any) -> Any:
        length = session.cache.length
        frontier = super().prefill(tokens, model, session)
        session.cache.length = max(length, session.cache.length)
        return frontier


@pytest.mark.parametrize(
    ("stages", "found"),
    [
        (Stages(commit=KeysOnly), "COMMIT.ALL_LAYERS"),
        (Stages(verification=MaskOfTheFirstTree), "VERIFICATION.RECTANGULAR_MASK"),
        (Stages(commit=GrowsBeforeItChecks), "COMMIT.VALIDATED_FIRST"),
        (Stages(round=RestartsBehindTheOldRows), "differ in length"),
    ],
)
def test_what_is_planted_is_found(stages: Stages, found: str) -> None:
    # A whole generation may stumble over it first, and then names what it leads to.
    with pytest.raises(AssertionError, match=f"{found}|ROUND."):
        search(stages)


def test_a_refusal_is_not_taken_for_a_crash() -> None:
    """The machine expects refusals by name; any other exception must reach the test."""

    class Crashes(CommitStage):
        def reserve(self, cache: Any, nodes: int) -> None:
            try:
                super().reserve(cache, nodes)
            except Refused as refusal:
                raise RuntimeError("no room") from refusal

    with pytest.raises(Incident, match="no room"):
        search(Stages(commit=Crashes))
