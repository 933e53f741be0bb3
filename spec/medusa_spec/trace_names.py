"""The names of a trace: its arrays with their axes, its documents, and what a typo meant."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import cache

from medusa_spec.cost import COUNTS, RATES
from medusa_spec.documents import schema
from medusa_spec.errors import InputError

NAME_LIMIT = 80
"""Characters of an unknown name that are looked at; the longest known one has 22."""

ARRAYS: Mapping[str, str] = {
    "heads.given.weight": "K, R_h, d, d",
    "heads.residual": "K, B, S, d",
    "heads.given.bias": "K, R_h, d",
    "heads.logits": "K, B, S, V",
    "heads.given.lm_head": "V, d",
    "heads.state.weight": "K, R_h, d, d",
    "heads.given.projection": "K, V, d",
    "heads.state.bias": "K, R_h, d",
    "heads.state.lm_head": "V, d",
    "heads.state.projection": "K, V, d",
    "heads.parameters": "",
    "heads.hidden": "B, S, d",
    "heads.altered_head": "",
    "heads.altered_logits": "K, B, S, V",
    "heads.tokens": "B, S",
    "heads.owned_tokens": "B, S",
    "heads.labels": "K, B, S",
    "heads.owned": "K, B, S",
    "heads.coverage": "K",
    "heads.masked_coverage": "K",
    "search.increments": "K, I",
    "search.weights": "U",
    "search.objective": "",
    "exactness.roots": "1 + V, V",
    "exactness.rows": "V, V",
    "exactness.law": "V^T",
    "exactness.target": "V^T",
    "exactness.distance": "",
    "exactness.path_probability": "1 + V, U",
    "exactness.proposal": "K, 1 + V, V",
    "exactness.tokens": "n, T",
    "exactness.again": "n, T",
    "exactness.other": "n, T",
    "training.step": "",
    "training.hidden": "B, S, d",
    "training.logits": "B, S, V",
    "training.teacher_logits": "B, S, V",
    "training.head_logits": "K, B, S, V",
    "training.labels": "K, B, S",
    "training.owned": "K, B, S",
    "training.head_losses": "K",
    "training.medusa_loss": "",
    "training.backbone_loss": "",
    "training.loss": "",
    "training.state.weight": "K, R_h, d, d",
    "training.state.bias": "K, R_h, d",
    "training.state.lm_head": "V, d",
    "training.state.projection": "K, V, d",
    "training.gradient.weight": "K, R_h, d, d",
    "training.gradient.bias": "K, R_h, d",
    "training.gradient.lm_head": "V, d",
    "training.gradient.projection": "K, V, d",
    "training.plain_first": "B, S, V",
    "training.plain_before": "B, S, V",
    "training.plain_after": "B, S, V",
    "checkpoint.held.weight": "K, R_h, d, d",
    "checkpoint.held.bias": "K, R_h, d",
    "checkpoint.held.lm_head": "V, d",
    "checkpoint.held.projection": "K, V, d",
    "checkpoint.loaded.weight": "K, R_h, d, d",
    "checkpoint.loaded.bias": "K, R_h, d",
    "checkpoint.loaded.lm_head": "V, d",
    "checkpoint.loaded.projection": "K, V, d",
    "checkpoint.saver_logits": "P, V",
    "checkpoint.loader_logits": "P, V",
    "checkpoint.loader_hidden": "P, d",
    "checkpoint.loader_heads": "K, P, V",
    "checkpoint.loader_kv": "L, 2, H_kv, P, d_h",
    "checkpoint.session_kv": "L, 2, H_kv, P, d_h",
    "checkpoint.began_kv": "L, 2, H_kv, P, d_h",
    "checkpoint.frontier.target": "V",
    "checkpoint.frontier.heads": "K, V",
    "checkpoint.before.logits": "P, V",
    "checkpoint.before.head_logits": "K, P, V",
    "checkpoint.before.kv": "L, 2, H_kv, P, d_h",
    "checkpoint.after.logits": "P, V",
    "checkpoint.after.head_logits": "K, P, V",
    "checkpoint.after.kv": "L, 2, H_kv, P, d_h",
    **{f"cost.{name}": "" for name in (*COUNTS, *RATES)},
    "claims.batch": "",
    "tree.slots": "N",
    "tree.mask": "N, N",
    "tree.depths": "N",
    "tree.retrieval": "R, W",
    "tree.node_count": "",
    "round.visible_kv": "L, 2, H_kv, P + G, d_h",
    "round.fresh_kv": "L, 2, H_kv, P + G, d_h",
    "frontier.target": "V",
    "frontier.heads": "K, V",
    "proposal.table": "1 + K*TOPK",
    "proposal.packed": "N",
    "proposal.candidates": "R, W",
    "verification.logits": "N, V",
    "verification.head_logits": "K, N, V",
    "verification.path_logits": "R, W, V",
    "verification.mask": "N, P + N",
    "verification.positions": "N",
    "verification.rows": "N",
    "verification.kv": "L, 2, H_kv, N, d_h",
    "plain.logits": "N, V",
    "plain.head_logits": "K, N, V",
    "plain.kv": "L, 2, H_kv, N, d_h",
    "plain.hidden": "N, d",
    "plain.state.weight": "K, R_h, d, d",
    "plain.state.bias": "K, R_h, d",
    "plain.state.lm_head": "V, d",
    "plain.state.projection": "K, V, d",
    "selection.candidates": "R, W",
    "selection.path_logits": "R, W, V",
    "selection.path": "",
    "selection.accepted": "",
    "selection.passes": "R, W - 1",
    "selection.lengths": "R",
    "selection.probability": "R, W - 1",
    "selection.entropy": "R, W - 1",
    "selection.threshold": "R, W - 1",
    "commit.tokens": "G",
    "commit.source": "G",
    "commit.destination": "G",
    "commit.length": "",
    "commit.frontier.target": "V",
    "commit.frontier.heads": "K, V",
    "cache.before": "L, 2, H_kv, C, d_h",
    "cache.after": "L, 2, H_kv, C, d_h",
    "cache.length": "",
    "refusal.before": "L, 2, H_kv, C, d_h",
    "refusal.after": "L, 2, H_kv, C, d_h",
    "refusal.length_before": "",
    "refusal.length_after": "",
    "generation.asked": "",
    "generation.tokens": "O",
    "generation.published": "Q",
    "generation.frontiers": "Q, V",
    "generation.plain_logits": "P + O, V",
    "chain.tokens": "O",
    "chain.published": "Q",
    "chain.plain_logits": "P + O, V",
    "chain.plain_heads": "K, P + O, V",
    "chain.frontier.target": "V",
    "chain.frontier.heads": "K, V",
    "chain.frontiers": "Q, V",
    "fresh.tokens": "O",
    "fresh.published": "Q",
    "fresh.frontiers": "Q, V",
    "rounds.tokens": "O",
    "rounds.published": "Q",
}
"""The axes of every array, in the symbols of `spec/README.md`; no axes at all are one number.

Among them are fields of a stage's answer that no oracle reads: an answer is written as it is.
"""


@cache
def documents() -> frozenset[str]:
    """The names of what is no array; the schema of a trace's header says what each may hold."""
    return frozenset(schema("trace_header")["properties"]["documents"]["properties"])


def is_refusal(name: str) -> bool:
    """Whether a document says what was refused: there `None` is an observation, too."""
    return name.endswith(".refused")


def unknown_name(source: str, name: str) -> InputError:
    """The error for a name that no oracle knows, with the nearest one that some oracle does."""
    # Of an untrusted file, whose names may be long: the search takes time that grows with them.
    shown = name[:NAME_LIMIT]
    nearest = difflib.get_close_matches(shown, [*ARRAYS, *sorted(documents())], 1, 0)
    return InputError(source, shown, f"no such name in a trace; the nearest is {nearest[0]}")


def judged_shape(source: str, name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of an array with as many axes as its name has; sizes are left to the oracles.

    One number may also come as an array of one, since some writers know no arrays without axes.
    Raises `InputError` for another number of axes: such an array is another thing altogether.
    """
    axes = ARRAYS[name]
    if not axes and tuple(shape) == (1,):
        return ()
    expected = len(axes.split(", ")) if axes else 0
    if len(shape) != expected:
        rule = f"has {len(shape)} axes, {list(shape[:8])}; expected are {expected}, [{axes}]"
        raise InputError(source, name, rule)
    return tuple(shape)
