"""What the engine counts is what it runs: beside a real pass over real tensors, in every layer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import medusa_manifests
from medusa_oracles.cost import derive_counts
from medusa_reference_engine.cost import CostStage, attention_flops, run_round, shape_of
from medusa_reference_engine.decoder import Cache, Decoder
from medusa_reference_engine.engine import ReferenceEngine
from medusa_spec.coordinate import Workload
from medusa_spec.cost import COUNTS

CPU, META = torch.device("cpu"), torch.device("meta")


def whole_pass(workload: Workload, device: torch.device, dtype: torch.dtype) -> Mapping[str, Any]:
    """FLOPs of all layers of a decoder with all its layers, in one pass over the packed rows."""
    shape = shape_of(workload)
    decoder = Decoder(shape, dtype=dtype, device=device)
    if device == CPU:
        for parameter in decoder.parameters():
            parameter.zero_()
    nodes = len(workload.paths) + 1
    rows = torch.arange(workload.prefix, workload.prefix + nodes, device=device)
    mask = torch.ones(nodes, workload.prefix + nodes, dtype=torch.bool, device=device)
    cache = Cache(shape, workload.prefix + nodes, dtype, device)
    tokens = torch.zeros(nodes, dtype=torch.int64, device=device)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        hidden = decoder(tokens, rows, rows, [mask] * workload.layers, cache)
    with torch.no_grad(), FlopCounterMode(display=False) as head:
        decoder.logits(hidden)
    return {"attention": attention_flops(counter), "lm": head.get_total_flops()}


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_a_pass_without_data_counts_what_a_pass_with_data_counts(
    workload: Workload, kv_heads: int
) -> None:
    grouped = replace(workload, kv_heads=kv_heads, layers=3)
    real = whole_pass(grouped, CPU, torch.float32)
    assert real == whole_pass(grouped, META, torch.float32)
    run = run_round(replace(grouped, profile=None), "all")
    # One of three layers is run.
    assert run.flops["attention"] * 3 == real["attention"]
    assert run.flops["lm"] == real["lm"]
    # 4 heads of 4 channels, 5 rows, 12 keys, a score and a value: no head of them is grouped.
    assert run.flops["attention"] == 4 * 4 * 5 * 12 * 2 * 2


def test_all_layers_of_the_article_s_sizes_count_as_one_of_them_does() -> None:
    nine = medusa_manifests.load("cost-nine-row").cost
    assert nine is not None
    whole = whole_pass(nine, META, torch.float16)
    pairs = derive_counts(nine)["dense_pairs"]
    assert whole["attention"] == 32 * 32 * 128 * 4 * pairs
    assert whole["lm"] == derive_counts(nine)["lm_flops"]


def test_the_bytes_of_a_verification_are_those_of_its_staged_rows() -> None:
    """An engine with weights, in float64: what it really staged, and what it really gathered."""
    coordinate = medusa_manifests.load("a31-nine-row")
    made = ReferenceEngine.seeded(coordinate.model, coordinate.heads, coordinate.capacity)
    policy, model = coordinate.policy, coordinate.model
    tree = made.compile_tree(
        coordinate.paths, coordinate.topk, policy.retrieval_order, policy.sentinel
    )
    frontier = made.prefill(coordinate.prefix)
    packed = made.propose(tree, frontier, coordinate.topk, policy.sentinel).packed
    verified = made.verify(tree, packed)
    plan = made.commit(0, 0, None)
    ledger = made.cost(
        Workload(
            prefix=coordinate.prefix_length,
            paths=coordinate.paths,
            heads=coordinate.heads,
            head_rows="all",
            layers=model.layers,
            hidden=model.hidden,
            attention_heads=model.attention_heads,
            kv_heads=model.kv_heads,
            intermediate=model.intermediate,
            vocabulary=model.vocabulary,
            head_blocks=model.head_blocks,
            projection=model.projection,
            scalar_bytes=8,
            published=len(plan.tokens),
            batch=1,
            profile=None,
        )
    )
    assert ledger.staged_bytes == verified.kv.nbytes
    assert ledger.committed_bytes == verified.kv[:, :, :, :1].nbytes
    assert ledger.logit_elements == verified.logits.size
    assert ledger.head_logit_elements == verified.head_logits.size
    assert ledger.head_rows == verified.head_logits.shape[1]
    assert ledger.path_logit_elements == verified.path_logits.size
    assert ledger.dense_pairs == verified.mask.size
    assert ledger.allowed_pairs == np.count_nonzero(verified.mask)


def test_heads_are_counted_as_they_are_held() -> None:
    coordinate = medusa_manifests.load("two-blocks")
    made = ReferenceEngine.seeded(coordinate.model, coordinate.heads, coordinate.capacity)
    state = made.forward(coordinate.prefix).state
    assert state is not None
    seen = made.apply_heads(state, np.zeros((1, 1, coordinate.model.hidden)))
    cost = medusa_manifests.load("cost-nine-row").cost
    assert cost is not None
    model = coordinate.model
    ledger = made.cost(
        replace(
            cost,
            paths=(),
            published=1,
            heads=coordinate.heads,
            hidden=model.hidden,
            attention_heads=model.attention_heads,
            kv_heads=model.kv_heads,
            vocabulary=model.vocabulary,
            head_blocks=model.head_blocks,
            projection=model.projection,
            profile=None,
        )
    )
    assert ledger.head_parameters == seen.parameters


def test_a_great_model_is_counted_at_once_and_not_allocated(workload: Workload) -> None:
    """Trillions of parameters, a prefix of a million rows: tebibytes, if there were any."""
    great = replace(
        workload,
        prefix=1_000_000,
        layers=200,
        hidden=32_768,
        attention_heads=256,
        kv_heads=256,
        intermediate=131_072,
        vocabulary=1_000_000,
        heads=64,
    )
    CostStage().ledger(workload)
    started = time.perf_counter()
    ledger = CostStage().ledger(great)
    assert time.perf_counter() - started < 2
    assert {name: getattr(ledger, name) for name in COUNTS} == derive_counts(great)


def test_what_was_counted_holds_no_data(workload: Workload) -> None:
    run = run_round(replace(workload, profile=None), "all")
    assert {run.kv.device, run.logits.device, run.head_logits.device} == {META}
    assert {tensor.device for tensor in run.held.named().values()} == {META}


def test_a_ledger_leaves_a_session_as_it_was(workload: Workload) -> None:
    coordinate = medusa_manifests.load("six-node")
    made = ReferenceEngine.seeded(coordinate.model, coordinate.heads, coordinate.capacity)
    made.prefill(coordinate.prefix)
    before = made.cache()
    made.cost(workload)
    after = made.cache()
    assert before.length == after.length
    np.testing.assert_array_equal(before.backing, after.backing)
