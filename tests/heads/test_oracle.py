"""Each oracle of the heads contract: silent on a lawful trace, heard on a corrupted one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from medusa_oracles import judge
from medusa_spec import Tolerance, Trace
from medusa_spec.registry import of_contract

# As many sequences as heads, so that a wrong order of axes keeps every shape.
K, B, S = 3, 3, 7
PATHS = ((0,), (0, 0), (0, 0, 0))


def _silu(x: float) -> float:
    return x / (1 + math.exp(-x))


def _run(given: dict[str, Any], hidden: Any, own: bool) -> tuple[Any, Any]:
    """Residual states and logits, one head, one block and one row at a time."""
    silu = np.vectorize(_silu)
    states, logits = [], []
    for head in range(K):
        state = hidden
        for weight, bias in zip(given["weight"][head], given["bias"][head], strict=True):
            state = state + silu(np.einsum("...i,oi->...o", state, weight) + bias)
        matrix = given["projection"][head] if own else given["lm_head"]
        states.append(state)
        logits.append(np.einsum("...i,vi->...v", state, matrix))
    return np.array(states), np.array(logits)


@pytest.fixture(scope="module", params=["independent", "shared"])
def trace(request: Any, coordinate: Any) -> Trace:
    generator = np.random.default_rng(3)
    planned = coordinate(PATHS, projection=request.param)
    d, v, own = planned.model.hidden, planned.model.vocabulary, request.param == "independent"
    given = {
        "weight": 0.3 * generator.normal(size=(K, 2, d, d)),
        "bias": generator.normal(size=(K, 2, d)),
        "lm_head": generator.normal(size=(v, d)),
    }
    if own:
        given["projection"] = generator.normal(size=(K, v, d))
    hidden = generator.normal(size=(B, 2, d))
    residual, logits = _run(given, hidden, own)
    altered = given | {"bias": given["bias"].copy()}
    altered["bias"][1] += 1.0
    tokens = generator.integers(0, v, (B, S))
    owned = generator.random((B, S)) < 0.5
    rows = generator.normal(size=(5, d))
    labels = np.full((K, B, S), -100)
    kept = np.zeros((K, B, S), np.bool_)
    for head in range(K):
        for row in range(S - head - 2):
            labels[head, :, row] = tokens[:, row + head + 2]
            kept[head, :, row] = owned[:, row + head + 2]
    arrays = {
        **{f"heads.given.{name}": value for name, value in given.items()},
        **{f"heads.state.{name}": value for name, value in given.items()},
        **{f"plain.state.{name}": value for name, value in given.items()},
        "plain.hidden": rows,
        "plain.logits": np.einsum("ri,vi->rv", rows, given["lm_head"]),
        "plain.head_logits": _run(given, rows, own)[1],
        "heads.hidden": hidden,
        "heads.residual": residual,
        "heads.logits": logits,
        "heads.altered_logits": _run(altered, hidden, own)[1],
        "heads.altered_head": np.array(1),
        "heads.parameters": np.array(K * (2 * (d * d + d) + (v * d if own else 0))),
        "heads.tokens": tokens,
        "heads.owned_tokens": owned,
        "heads.labels": labels,
        "heads.owned": kept,
        "heads.coverage": np.array([B * 5, B * 4, B * 3]),
        "heads.masked_coverage": np.array([int(owned[:, j + 2 :].sum()) for j in range(K)]),
    }
    within = Tolerance(1e-9, 1e-9, "one dtype")
    return Trace(planned, within, within, arrays)


def _aliased(trace: Trace) -> dict[str, Any]:
    weight = trace["heads.state.weight"].copy()
    weight[1, 1] = weight[1, 0]
    return {"heads.state.weight": weight}


def _unshifted(trace: Trace) -> dict[str, Any]:
    owned = trace["heads.owned_tokens"]
    counts = [int(owned[:, : S - j - 2].sum()) for j in range(K)]
    assert counts != trace["heads.masked_coverage"].tolist()
    return {"heads.masked_coverage": np.array(counts)}


CASES: dict[str, Callable[[Trace], dict[str, Any]]] = {
    # Two heads exchanged.
    "HEADS.OFFSET": lambda t: {"heads.logits": t["heads.logits"][[1, 0, 2]]},
    # The block without what it was given.
    "HEADS.RESIDUAL_FORM": lambda t: {"heads.residual": t["heads.residual"] - t["heads.hidden"]},
    "HEADS.BLOCKS_DISTINCT": _aliased,
    # A projection with a bias.
    "HEADS.PROJECTION": lambda t: {"heads.logits": t["heads.logits"] + 0.1},
    "HEADS.SHAPES": lambda t: {"heads.logits": t["heads.logits"].swapaxes(0, 1)},
    "HEADS.PARAMETER_COUNT": lambda t: {"heads.parameters": t["heads.parameters"] + 1},
    # Every head counted like the first.
    "HEADS.COVERAGE": lambda t: {"heads.coverage": np.full(K, B * 5)},
    "HEADS.MASKED_COVERAGE": _unshifted,
    # Head 2 follows head 1's choice.
    "HEADS.SAME_HIDDEN_STATE": lambda t: {
        "heads.altered_logits": np.concatenate(
            [t["heads.altered_logits"][:2], t["heads.altered_logits"][2:] + 1.0]
        )
    },
    # Decoding stacks them in reverse; applied alone they are right.
    "HEADS.DECODES_AS_APPLIED": lambda t: {"plain.head_logits": t["plain.head_logits"][::-1]},
}


def test_every_invariant_has_a_case() -> None:
    assert set(CASES) == {invariant.code for invariant in of_contract("heads")}


@pytest.mark.parametrize("code", CASES)
def test_oracle(code: str, trace: Trace, prove: Any) -> None:
    prove(code, trace, CASES[code](trace))


def test_labels_of_the_ordinary_head_are_no_labels_of_head_zero(trace: Trace, fired: Any) -> None:
    early = np.full((K, B, S), -100)
    for head in range(K):
        early[head, :, : S - head - 1] = trace["heads.tokens"][:, head + 1 :]
    assert fired(trace, {"heads.labels": early}) == {"HEADS.OFFSET"}


def test_blocks_alias_across_heads(trace: Trace, fired: Any) -> None:
    weight = trace["heads.state.weight"].copy()
    weight[2, 1] = weight[0, 1]
    assert fired(trace, {"heads.state.weight": weight}) == {"HEADS.BLOCKS_DISTINCT"}


def test_blocks_that_were_given_equal_may_be_equal(trace: Trace, fired: Any) -> None:
    zero = np.zeros_like(trace["heads.given.weight"])
    changes = {"heads.given.weight": zero, "heads.state.weight": zero}
    assert "HEADS.BLOCKS_DISTINCT" not in fired(trace, changes)


def test_counts_of_fewer_heads_are_too_few(trace: Trace, fired: Any) -> None:
    changes = {name: trace[name][:1] for name in ("heads.coverage", "heads.masked_coverage")}
    assert fired(trace, changes) == {"HEADS.COVERAGE", "HEADS.MASKED_COVERAGE"}


def test_the_right_count_of_the_wrong_labels_is_wrong(trace: Trace, fired: Any) -> None:
    moved = np.roll(trace["heads.owned"], 1, axis=1)
    assert fired(trace, {"heads.owned": moved}) == {"HEADS.MASKED_COVERAGE"}


def test_the_other_projection_is_heard(trace: Trace, fired: Any) -> None:
    shape = trace.coordinate.model
    other = "shared" if shape.projection == "independent" else "independent"
    declared = replace(trace.coordinate, model=replace(shape, projection=other))
    given = {"heads.given.projection": np.ones((K, shape.vocabulary, shape.hidden))}
    undeclared = replace(trace, coordinate=declared, arrays=given | dict(trace.arrays))
    assert {"HEADS.PROJECTION", "HEADS.PARAMETER_COUNT"} <= fired(undeclared, {})


def test_parameters_of_another_model_are_not_multiplied_out(trace: Trace) -> None:
    # A few bytes of a file, behind which the states alone would take a terabyte.
    shape = trace.coordinate.model
    none = replace(trace.coordinate, model=replace(shape, head_blocks=0))
    given = {
        "heads.given.weight": np.zeros((10**6, 0, shape.hidden, shape.hidden)),
        "heads.given.bias": np.zeros((10**6, 0, shape.hidden)),
        "heads.hidden": np.zeros((10**5, 1, shape.hidden)),
        "heads.state.weight": np.zeros((10**6, 0, shape.hidden, shape.hidden)),
    }
    found = judge(replace(trace, coordinate=none, arrays={**trace.arrays, **given})).findings
    said = {finding.code: finding.message for finding in found}
    assert "the model has (3, 0)" in said["HEADS.BLOCKS_DISTINCT"]
    assert "heads.given.weight is [1000000, 0" in said["HEADS.RESIDUAL_FORM"]


@pytest.mark.parametrize("name", ["residual", "logits"])
def test_another_shape_is_said_and_nothing_is_multiplied_out(
    name: str, trace: Trace, fired: Any
) -> None:
    code = {"residual": "HEADS.RESIDUAL_FORM", "logits": "HEADS.SHAPES"}[name]
    assert code in fired(trace, {f"heads.{name}": trace[f"heads.{name}"][:, :1]})


def test_heads_of_decoding_read_what_the_base_head_reads(trace: Trace, fired: Any) -> None:
    # Of a hidden state that is not the one shown, base model and heads say something else.
    for name in ("plain.logits", "plain.hidden"):
        assert fired(trace, {name: trace[name] * 1.01}) == {"HEADS.DECODES_AS_APPLIED"}


def test_rows_that_were_not_read_are_not_made_up(trace: Trace, fired: Any) -> None:
    for name in ("plain.logits", "plain.head_logits"):
        changed = trace[name][..., :-1, :]
        assert fired(trace, {name: changed}) == {"HEADS.DECODES_AS_APPLIED"}


def test_a_state_without_the_projections_of_its_heads_proves_nothing(trace: Trace) -> None:
    bare = {k: v for k, v in trace.arrays.items() if k != "plain.state.projection"}
    shared = trace.coordinate.model.projection == "shared"
    judgement = judge(replace(trace, arrays=bare))
    assert judgement.findings == ()
    assert ("HEADS.DECODES_AS_APPLIED" in judgement.executed) == shared


def test_heads_of_decoding_that_cannot_be_told_apart_prove_nothing(trace: Trace) -> None:
    # Freshly made ones: all of their blocks add the same, and all project alike.
    arrays = dict(trace.arrays)
    for name in ("weight", "bias", "projection"):
        if f"plain.state.{name}" in arrays:
            arrays[f"plain.state.{name}"] = np.repeat(trace[f"plain.state.{name}"][:1], K, axis=0)
    arrays["plain.head_logits"] = np.repeat(trace["plain.head_logits"][:1], K, axis=0)
    fresh = judge(replace(trace, arrays=arrays))
    assert fresh.findings == ()
    assert "HEADS.DECODES_AS_APPLIED" not in fresh.executed
    # What breaks the rule even so is heard.
    arrays["plain.head_logits"] = arrays["plain.head_logits"] + 1.0
    (finding,) = judge(replace(trace, arrays=arrays)).findings
    assert finding.code == "HEADS.DECODES_AS_APPLIED"
