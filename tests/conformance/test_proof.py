"""Agreement is no proof where a fault would have agreed as well: such a rule is not exercised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from medusa_conformance.runner import (
    Factory,
    Setting,
    Tally,
    frozen_coordinates,
    is_small,
    judge_coordinates,
    reference_factory,
)
from medusa_conformance.verdicts import invariant_rows
from medusa_manifests import load
from medusa_reference_engine import ReferenceEngine
from medusa_reference_engine.decoder import Decoder
from medusa_reference_engine.engine import Stages
from medusa_reference_engine.verification import VerificationStage
from medusa_reference_engine.weights import head_state, seeded_weights
from medusa_spec.arrays import DType, FloatArray
from medusa_spec.coordinate import Coordinate
from medusa_spec.registry import CONTRACTS, invariants

SHOWN = (
    *("six-node", "own-acceptance-typical", "regular-3-2-2"),
    *("assistant-only", "assistant-only-joint", "assistant-only-distilled"),
    *("two-heads", "ten-paths"),
    *("law-greedy", "law-nucleus-per-path", "law-rejection"),
    *("checkpoint-shared", "checkpoint-joint", "cost-shared-heads"),
    *("typed-edges", "typed-sources", "typed-run"),
)
OF_HEADS = {"HEADS.DECODES_AS_APPLIED", "VERIFICATION.HEAD_LOGITS", "ROUND.PREFILL_FRONTIER"}
OF_A_PLAIN_PASS = {
    *OF_HEADS,
    *(f"VERIFICATION.{name}" for name in ("PATH_LOGITS", "PATH_KV")),
    *(f"ROUND.{name}" for name in ("FRONTIER_FEEDS_NEXT", "CACHE_MATCHES_TOKENS")),
    *(f"ROUND.{name}" for name in ("GREEDY_EQUALS_PLAIN", "TREE_INDEPENDENT", "CHAIN_IS_CHAIN")),
    *(f"ROUND.{name}" for name in ("SUPERSET_NEVER_SHORTER", "RESTARTABLE")),
}


class HeadsInReverse(VerificationStage):
    def row_head_logits(self, head_logits: Any) -> Any:
        return head_logits.flip(0)


class RowsOfOneDepthSeeEachOther(VerificationStage):
    def verify(self, tree: Any, packed: Any, model: Any, cache: Any) -> Any:
        self.depths = torch.as_tensor(tree.depths)
        return super().verify(tree, packed, model, cache)

    def layer_masks(self, mask: Any, cache: Any) -> Any:
        *earlier, last = super().layer_masks(mask, cache)
        leaking = last.clone()
        leaking[:, -len(self.depths) :] |= self.depths[:, None] == self.depths
        return [*earlier, leaking]


def fresh(name: str, array: FloatArray, base: FloatArray) -> FloatArray:
    """Heads as they are made before any training: blocks that add nothing, the base projection."""
    if not name.startswith("medusa_head."):
        return array
    return np.zeros_like(array) if ".linear." in name else base


def small(name: str, array: FloatArray, base: FloatArray) -> FloatArray:
    """A model as it is made before any training: normal weights of 0.02, norms of one."""
    return np.ones_like(array) if "norm" in name else 0.02 * array / array.std()


def made(
    change: Callable[[str, FloatArray, FloatArray], FloatArray],
    stage: type[VerificationStage] = VerificationStage,
    dtype: DType = "float64",
) -> Factory:
    def make(coordinate: Coordinate, capacity: int) -> ReferenceEngine:
        shape, heads = coordinate.model, coordinate.heads
        drawn = seeded_weights(shape, heads)
        weights = {
            name: torch.from_numpy(np.array(change(name, array, drawn["lm_head.weight"])))
            for name, array in drawn.items()
        }
        decoder = Decoder(shape, dtype=getattr(torch, dtype), device=torch.device("cpu"))
        own = {name: w for name, w in weights.items() if not name.startswith("medusa_head.")}
        decoder.load_state_dict(own)
        state = head_state(shape, weights, heads)
        return ReferenceEngine(decoder.eval(), state, capacity, Stages(verification=stage))

    return make


def judged(factory: Factory, dtype: DType = "float64") -> Tally:
    return judge_coordinates(factory, map(load, SHOWN), Setting("cpu", dtype))


def idle(tally: Tally) -> set[str]:
    return set(invariants()) - set(tally.executed)


@pytest.mark.parametrize("stage", [VerificationStage, HeadsInReverse])
def test_heads_that_are_all_alike_prove_no_order(stage: type[VerificationStage]) -> None:
    tally = judged(made(fresh, stage))
    assert (tally.failed, tally.crashes) == ({}, [])
    assert idle(tally) == OF_HEADS
    rows = {row["code"]: row for row in invariant_rows(tally, CONTRACTS, ())}
    said = "what the engine showed is too little, or too alike, to prove it"
    assert {(rows[code]["status"], rows[code]["reason"]) for code in OF_HEADS} == {
        ("not-exercised", said)
    }


def test_heads_that_are_not_alike_prove_it() -> None:
    tally = judged(made(lambda name, array, base: array, HeadsInReverse))
    assert "VERIFICATION.HEAD_LOGITS" in tally.failed


@pytest.mark.parametrize("stage", [VerificationStage, RowsOfOneDepthSeeEachOther])
def test_logits_smaller_than_their_rounding_prove_nothing(stage: type[VerificationStage]) -> None:
    tally = judged(made(small, stage, "bfloat16"), "bfloat16")
    assert (tally.failed, tally.crashes) == ({}, [])
    assert idle(tally) == OF_A_PLAIN_PASS


def test_small_doubles_prove_as_much_as_great_ones() -> None:
    assert idle(judged(made(small))) == set()
    tally = judged(made(small, RowsOfOneDepthSeeEachOther))
    assert "VERIFICATION.PATH_LOGITS" in tally.failed


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_reference_engine_proves_every_rule_in_every_dtype(dtype: Any) -> None:
    setting = Setting("cpu", dtype)
    chosen = [coordinate for coordinate in frozen_coordinates() if is_small(coordinate)]
    tally = judge_coordinates(reference_factory(setting), chosen, setting)
    assert [str(located.finding) for located in tally.findings] == []
    assert (tally.crashes, idle(tally)) == ([], set())
    # One head alone has no order.
    several = sum(coordinate.heads > 1 for coordinate in chosen)
    assert {tally.executed[code] for code in OF_HEADS} == {several}
    assert {tally.executed[code] for code in OF_A_PLAIN_PASS - OF_HEADS} == {len(chosen)}
