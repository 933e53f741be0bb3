"""Engines that are right once: what the first request asked for, or left, answers in the next."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from medusa_conformance.crafted import unsorted
from medusa_conformance.generation import STEPS
from medusa_conformance.line import Factory, Line
from medusa_conformance.runner import Setting, Tally, judge_coordinates, judge_line
from medusa_manifests import load, tolerance
from medusa_reference_engine.decoder import causal_mask
from medusa_reference_engine.engine import ReferenceEngine, Stages
from medusa_reference_engine.heads import HeadStage
from medusa_reference_engine.proposal import ProposalStage
from medusa_reference_engine.tree import TreeStage
from medusa_reference_engine.verification import floats
from medusa_spec import CONTRACTS, Coordinate
from medusa_spec.dialect import dialect_from
from medusa_spec.stages import Frontier, HeadAlignment, TreeBuffers

SETTING = Setting("cpu", "float64")


class KeepsItsFirstPolicy(ReferenceEngine):
    def select(self, candidates: Any, path_logits: Any, policy: Any) -> Any:
        self.__dict__.setdefault("first", policy)
        return super().select(candidates, path_logits, self.first)


class KeepsItsFirstEnd(ReferenceEngine):
    def generate(self, *given: Any) -> Any:
        *most, end = given
        self.__dict__.setdefault("first", end)
        return super().generate(*most, self.first)


class KeepsTreesWithoutTheirTopk(ReferenceEngine):
    def compile_tree(self, paths: Any, topk: int, order: str, sentinel: int) -> Any:
        kept = self.__dict__.setdefault("kept", {})
        key = tuple(sorted(paths)), order, sentinel
        if key not in kept:
            kept[key] = super().compile_tree(paths, topk, order, sentinel)
        return kept[key]


class KeepsMasksBySize(ReferenceEngine):
    def compile_tree(self, *given: Any) -> Any:
        tree = super().compile_tree(*given)
        kept = self.__dict__.setdefault("kept", {})
        return replace(tree, mask=kept.setdefault(tree.mask.shape, tree.mask))


class ProposesForItsFirstTopk(ReferenceEngine):
    def propose(self, tree: Any, frontier: Any, topk: int, sentinel: int) -> Any:
        self.__dict__.setdefault("first", topk)
        return super().propose(tree, frontier, self.first, sentinel)


class KeepsARowTooMany(ReferenceEngine):
    """A cache of prompts: what two of them share is not read again, nor is the row behind it."""

    held: Sequence[int] = ()

    @torch.inference_mode()
    def prefill(self, tokens: Any) -> Any:
        tokens, held = list(tokens), self.held
        pairs = zip(tokens, held, strict=False)
        shared = next((n for n, (ours, theirs) in enumerate(pairs) if ours != theirs), 0)
        if shared < 2 or len(tokens) > self.capacity:
            self.held = tokens
            return super().prefill(tokens)
        self.held, session = tokens, self._session
        begin = min(shared + 1, len(tokens) - 1)
        rows = torch.arange(begin, len(tokens))
        masks = [causal_mask(len(tokens), rows.device)[begin:]] * len(session.cache.kv)
        given = torch.as_tensor(tokens[begin:])
        logits, heads = self._model.read(given, rows, rows, masks, session.cache)
        session.cache.length, session.staged = len(tokens), None
        return Frontier(floats(logits[-1]), floats(heads[:, -1]))

    def commit(self, *given: Any) -> Any:
        plan = super().commit(*given)
        self.held = [*self.held, *plan.tokens.tolist()]
        return plan


class SharesItsRows(ReferenceEngine):
    """One backing for all engines of a shape, whoever holds it."""

    pool: ClassVar[dict[Any, Any]] = {}

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        own = self._session.cache
        own.kv = self.pool.setdefault(tuple(own.kv.shape), own.kv)


ENGINES = {
    KeepsItsFirstPolicy: ("six-node", "POSTERIOR.TYPICAL_MATCH"),
    KeepsItsFirstEnd: ("six-node", "COMMIT.END_OF_SEQUENCE"),
    KeepsTreesWithoutTheirTopk: ("six-node", "TREE.SLOT"),
    KeepsMasksBySize: ("rank-gaps", "TREE.MASK_IS_ANCESTRY"),
    ProposesForItsFirstTopk: ("six-node", "PROPOSAL.TOPK"),
    KeepsARowTooMany: ("six-node", "ROUND.FRONTIER_FEEDS_NEXT"),
    SharesItsRows: ("six-node", "VERIFICATION.PATH_LOGITS"),
}


class ReversesAndSortsByLength(TreeStage):
    def row_order(self, paths: Any) -> Any:
        listed = list(paths)
        listed.reverse()
        return [(), *sorted(listed, key=len)]


class AlignsTwo(HeadStage):
    def align(self, tokens: Any, owned: Any, heads: int) -> HeadAlignment:
        found = super().align(tokens, owned, heads)
        covered = [2 * self.covered(tokens.shape[1], head) for head in range(heads)]
        return replace(found, coverage=np.array(covered))


class RepeatsTheSecondPosition(HeadStage):
    def residual(self, held: Any, head: int, hidden: Any) -> Any:
        found = super().residual(held, head, hidden)
        if hidden.ndim == 3:
            found = found.clone()
            found[..., 2:, :] = found[..., 1:2, :]
        return found


STAGES = {
    ReversesAndSortsByLength: ("tree", "a31-nine-row", "TREE.ROW_ORDER"),
    AlignsTwo: ("heads", "six-node", "HEADS.COVERAGE"),
    RepeatsTheSecondPosition: ("heads", "six-node", "HEADS.RESIDUAL_FORM"),
}


def found(frozen: Coordinate, make: Factory) -> set[str]:
    tally = judge_coordinates(make, [frozen], SETTING)
    assert tally.crashes == []
    return set(tally.failed)


def made(engine: type[ReferenceEngine] = ReferenceEngine, **stages: Any) -> Factory:
    def make(given: Coordinate, capacity: int) -> Any:
        return engine.seeded(given.model, given.heads, capacity, stages=Stages(**stages))

    return make


@pytest.mark.parametrize("engine", ENGINES)
def test_what_outlives_its_request_is_found(engine: type[ReferenceEngine]) -> None:
    name, code = ENGINES[engine]
    assert code in found(load(name), made(engine))


@pytest.mark.parametrize("stage", STAGES)
def test_what_one_size_or_order_hides_is_found(stage: type) -> None:
    contract, name, code = STAGES[stage]
    assert code in found(load(name), made(**{contract: stage}))


class Few:
    """An engine of which some stages are shown."""

    def __init__(self, engine: Any, stages: Collection[str]) -> None:
        self._engine, self._stages = engine, stages

    def __getattr__(self, name: str) -> Any:
        if name not in self._stages:
            raise AttributeError(name)
        return getattr(self._engine, name)


def few(make: Factory, *stages: str) -> Factory:
    return lambda given, capacity: Few(make(given, capacity), stages)


@pytest.mark.parametrize(
    ("stages", "code"),
    [(["select"], "POSTERIOR.GREEDY_MATCH"), (["generate", "forward"], "ROUND.RESTARTABLE")],
)
def test_a_policy_that_stays_is_found_by_few_stages_too(stages: list[str], code: str) -> None:
    make = few(made(KeepsItsFirstPolicy), *stages)
    assert code in found(load("own-acceptance-typical"), make)


@pytest.mark.parametrize(
    ("stages", "code"),
    [
        (["generate", "forward"], "ROUND.FRONTIER_FEEDS_NEXT"),
        ([*STEPS, "forward"], "ROUND.PREFILL_FRONTIER"),
    ],
)
def test_rows_too_many_are_found_by_few_stages_too(stages: list[str], code: str) -> None:
    assert code in found(load("six-node"), few(made(KeepsARowTooMany), *stages))


def test_a_list_of_paths_is_neither_ascending_nor_descending() -> None:
    paths = load("a31-nine-row").paths
    listed = unsorted(paths)
    assert sorted(listed) == sorted(paths)
    assert listed not in (paths, paths[::-1])
    assert listed == unsorted(paths)


class KnowsPaddingFromItsTree(ReferenceEngine):
    """Right: its candidates are padded with token 0, and its own retrieval rows say where."""

    tree: TreeBuffers

    def compile_tree(self, *given: Any) -> Any:
        self.tree = super().compile_tree(*given)
        return self.tree

    def select(self, candidates: Any, path_logits: Any, policy: Any) -> Any:
        known = np.where(self.tree.retrieval < 0, -1, candidates)
        return super().select(known, path_logits, policy)


class PadsWithZero(ProposalStage):
    def candidates(self, packed: Any, tree: Any, sentinel: int) -> Any:
        return np.where(tree.retrieval < 0, 0, packed[np.maximum(tree.retrieval, 0)])


@pytest.mark.parametrize("name", ["rank-gaps", "posterior-fast-typical", "own-acceptance"])
def test_an_engine_that_knows_padding_from_its_own_tree_is_right(name: str) -> None:
    make = made(KnowsPaddingFromItsTree, proposal=PadsWithZero)
    within, dialect = (
        (tolerance("float64"), tolerance("policy")),
        dialect_from({"pad_token": 0}, ""),
    )
    for engine in (make, few(make, "compile_tree", "propose", "select")):
        tally = Tally()
        judge_line(Line(load(name), engine, *within, dialect=dialect), frozenset(CONTRACTS), tally)
        assert (tally.crashes, set(tally.failed)) == ([], set())
        assert tally.executed["POSTERIOR.FINITE"]
