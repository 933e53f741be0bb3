"""What the stages of an engine give: the values that the runner writes into a trace.

Shapes: `N` packed rows with the root, `R` retrieval paths of width `W`, `K` heads, `V` vocabulary,
`L` layers, `H_kv` key/value heads of width `d_h`, `P` committed rows, `G` published tokens, `U`
paths that a search admitted by `I` ranks a head.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from medusa_spec.arrays import Array, BoolArray, FloatArray, IntArray, RankPath, numpy_of
from medusa_spec.claims import Claims
from medusa_spec.cost import CostLedger
from medusa_spec.laws import OutputLaw, Sampled


@dataclass(frozen=True, slots=True)
class TreeBuffers:
    """The four coupled buffers of a tree, and the row order that they share (0x04A)."""

    paths: tuple[RankPath, ...]
    """`[N]`, the root's empty path first."""
    slots: IntArray
    """`[N]`, candidate slot of each row (`tree_indices`)."""
    mask: BoolArray
    """`[N, N]`, true where the row may see the column."""
    depths: IntArray
    """`[N]`, depth below the root (`position_ids`)."""
    retrieval: IntArray
    """`[R, W]`, rows of each maximal path, padded with the sentinel (`retrieve_indices`)."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """The logits that the next proposal reads: target `[V]` and heads `[K, V]`."""

    target: FloatArray
    heads: FloatArray


@dataclass(frozen=True, slots=True)
class Proposal:
    """Candidates: by slot `[1 + K*TOPK]`, by packed row `[N]`, by path `[R, W]` with sentinels."""

    table: IntArray
    packed: IntArray
    candidates: IntArray


@dataclass(frozen=True, slots=True)
class Verification:
    """One target pass over the packed tree, staged behind `P` committed rows."""

    logits: FloatArray
    """`[N, V]`"""
    head_logits: FloatArray
    """`[K, N, V]`"""
    path_logits: FloatArray
    """`[R, W, V]`; entries at sentinels mean nothing."""
    mask: BoolArray
    """`[N, P + N]`"""
    positions: IntArray
    """`[N]`, logical positions."""
    rows: IntArray
    """`[N]`, physical cache rows."""
    kv: FloatArray
    """`[L, 2, H_kv, N, d_h]`, keys then values."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The winner: `path` indexes the retrieval rows, `accepted` counts its suffix edges.

    The arrays are what the decision was made of: `[R, W-1]` per edge, `[R]` per path. A greedy
    selection has no probability, entropy or threshold.
    """

    path: int
    accepted: int
    passes: BoolArray
    lengths: IntArray
    probability: FloatArray | None = None
    entropy: FloatArray | None = None
    threshold: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """One immutable publication: tokens and rows `[G]`, the new length, the next frontier."""

    tokens: IntArray
    source: IntArray
    destination: IntArray
    length: int
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class CacheView:
    """The cache: whole backing `[L, 2, H_kv, capacity, d_h]`, and how many rows are visible."""

    backing: FloatArray
    length: int


@dataclass(frozen=True, slots=True)
class Forward:
    """A plain causal pass over `S` tokens: no tree, no reuse of the session's cache."""

    logits: FloatArray
    """`[S, V]`"""
    head_logits: FloatArray
    """`[K, S, V]`"""
    kv: FloatArray
    """`[L, 2, H_kv, S, d_h]`"""
    hidden: FloatArray | None = None
    """`[S, d]`, what the heads read, and the base model's own head."""
    state: HeadState | None = None
    """The parameters with which they read it; one pass of an engine that shows them is enough."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A whole generation: its tokens, and what each round published and began with."""

    tokens: tuple[int, ...]
    """New tokens only, at most as many as were asked for."""
    published: tuple[int, ...]
    """Tokens that each round published, before the last one is cut to what was asked for."""
    frontiers: FloatArray
    """`[rounds, V]`, the target logits from which each round chose its root."""


@dataclass(frozen=True, slots=True)
class HeadState:
    """The parameters of `K` heads of `R_h` blocks, and the base language-model head.

    `weight` `[K, R_h, d, d]`, `bias` `[K, R_h, d]`, `lm_head` `[V, d]`; `projection` is
    `[K, V, d]` where each head owns one, `None` where all share `lm_head` (0x02D).
    """

    weight: FloatArray
    bias: FloatArray
    lm_head: FloatArray
    projection: FloatArray | None


@dataclass(frozen=True, slots=True)
class HeadPass:
    """What `K` heads made of hidden states `[..., d]`."""

    residual: FloatArray
    """`[K, ..., d]`, the state before the vocabulary projection."""
    logits: FloatArray
    """`[K, ..., V]`"""
    state: HeadState
    """The parameters as the heads hold them after loading."""
    parameters: int
    """Parameters that the heads add to the base model."""


@dataclass(frozen=True, slots=True)
class HeadAlignment:
    """Shifted labels of `K` heads over a batch `[B, S]` (0x02F)."""

    labels: IntArray
    """`[K, B, S]`: the label of hidden row `t`, -100 where there is none."""
    owned: BoolArray
    """`[K, B, S]`: whether the training objective owns that label."""
    coverage: IntArray
    """`[K]`, labels inside the sequence."""
    masked_coverage: IntArray
    """`[K]`, labels that are also owned."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """A tree of `U` paths for `K` heads of `I` ranks, and how it was searched for (0x04C)."""

    increments: FloatArray
    """`[K, I]`, the mass of each rank alone."""
    paths: tuple[RankPath, ...]
    """`[U]`, in the order of their admission; the root is not among them."""
    weights: FloatArray
    """`[U]`, the estimated probability that each path matches to its end."""
    decisions: tuple[Mapping[str, Any], ...]
    """`[U]`, one an admission: its `path` and `weight`, how many paths stood in the `frontier`, and
    `runner_up` and `runner_up_weight`, the best of the others: both `None` where there was none."""
    objective: FloatArray
    """One number, the expected accepted edges of a round."""
    identity: Mapping[str, Any]
    """What the tree was searched for: `model`, `data_set`, `prompts`, `policy`, `nodes`."""
    claim: Mapping[str, Any]
    """What the objective is: its `quantity`, `assumption` and `evidence`."""


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One optimizer step over a batch `[B, S]`: its losses, and what it changed (0x05).

    Every number is that of the forward pass before the update.
    """

    hidden: FloatArray
    """`[B, S, d]`, what the heads read."""
    logits: FloatArray
    """`[B, S, V]`, the ordinary head's: the student's, where there is a teacher."""
    teacher_logits: FloatArray
    """`[B, S, V]`, the ordinary head's with the adapter off; `None` without a teacher."""
    head_logits: FloatArray
    """`[K, B, S, V]`"""
    labels: IntArray
    """`[K, B, S]`: the label of hidden row `t`, -100 where there is none."""
    owned: BoolArray
    """`[K, B, S]`: whether the objective owns that label."""
    head_losses: FloatArray
    """`[K]`, the mean over owned labels; 0 for a head that has none."""
    medusa_loss: FloatArray
    """One number, the weighted sum of the heads' losses."""
    backbone_loss: FloatArray
    """One number: cross-entropy or distillation; `None` where the backbone does not train."""
    loss: FloatArray
    """One number, the one whose gradient was taken."""
    state: HeadState
    """The heads' parameters before the update."""
    gradient: HeadState
    """Of `loss`, by the heads' own parameters; `lm_head` is `None`."""
    skipped: tuple[Mapping[str, Any], ...]
    """`head` and `reason` of each head without owned labels."""
    groups: tuple[Mapping[str, Any], ...]
    """The optimizer's groups: `name` ("heads" or "backbone"), `rate`, names of its `parameters`."""
    parameters: tuple[Mapping[str, Any], ...]
    """Every parameter of the model: `name`, `part` ("heads", "backbone", "lm_head" or "adapter"),
    and `before` and `after` the step: the hexadecimal SHA-256 of its bytes."""


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """What stands in the folder of a checkpoint, and where; names are relative to it (0x05D)."""

    config: str
    """The JSON file that says what the checkpoint is."""
    fields: Mapping[str, str]
    """Of each of `IDENTITY` its key in that file; a dot leads into an object."""
    heads: tuple[str, ...]
    """The files that hold the heads."""
    backbone: tuple[str, ...]
    """The files that hold a changed backbone, or its adapter; none where it is the base's own."""


IDENTITY = (
    "base",
    "base_revision",
    "tokenizer",
    "variant",
    "heads",
    "blocks",
    "projection",
    "offset",
    "dtype",
)
"""What a checkpoint says of itself: a `Release`, then `K`, `R_h`, "independent" or "shared", the
distance 2 from a row to head 0's label, and the dtype of its tensors."""


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """The heads as they are held now, and the `IDENTITY` that was read."""

    state: HeadState
    identity: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Admission:
    """The coordinate as the engine understood it, and its rows in every domain (0x01B)."""

    document: Mapping[str, Any]
    rows: tuple[Mapping[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage is given, in order, and the form of what it answers."""

    arguments: tuple[str, ...]
    answer: type


STAGES: Mapping[str, Stage] = {
    "admit": Stage(("document",), Admission),
    "apply_heads": Stage(("state", "hidden"), HeadPass),
    "align_heads": Stage(("tokens", "owned", "heads"), HeadAlignment),
    "search_tree": Stage(("calibration",), SearchPlan),
    "law": Stage(("exactness",), OutputLaw),
    "sample": Stage(("exactness", "seed", "count"), Sampled),
    "train_step": Stage(("training", "step"), TrainingStep),
    "save_checkpoint": Stage(("folder", "release", "state"), SavedCheckpoint),
    "load_checkpoint": Stage(("folder", "release"), LoadedCheckpoint),
    "cost": Stage(("workload",), CostLedger),
    "publish_claims": Stage(("facts",), Claims),
    "compile_tree": Stage(("paths", "topk", "retrieval_order", "sentinel"), TreeBuffers),
    "node_count": Stage(("branching",), int),
    "prefill": Stage(("tokens",), Frontier),
    "propose": Stage(("tree", "frontier", "topk", "sentinel"), Proposal),
    "verify": Stage(("tree", "packed"), Verification),
    "select": Stage(("candidates", "path_logits", "policy"), Selection),
    "label": Stage(("policy",), object),
    "commit": Stage(("path", "accepted", "end_of_sequence"), CommitPlan),
    "cache": Stage((), CacheView),
    "forward": Stage(("tokens",), Forward),
    "generate": Stage(
        ("prefix", "how_many", "paths", "topk", "policy", "end_of_sequence"), Decoded
    ),
}
"""Every stage of the engine protocol. An engine's capabilities are those that it has."""

_NESTED: Mapping[str, type] = {"Frontier": Frontier, "HeadState": HeadState}


def answer_of(kind: type, value: Any) -> Any:
    """A stage's answer in its own form, from any object or mapping that has its fields.

    A field that is absent or `None` was not observed, and is `None`. Arrays of another library and
    lists become numpy arrays. `TypeError` or `ValueError` where a value is of no such form, and for
    a key that is no field: what is misspelt would not be judged.
    """
    if kind is object:
        return value
    if kind is int:
        return _integer(value)
    if value is None:
        raise TypeError(f"None is no {kind.__name__}")
    names = [f.name for f in fields(kind)]
    for key in value if isinstance(value, Mapping) else ():
        if key not in names:
            # The key may be as long as anything, and the search takes time that grows with it.
            shown = repr(key)[:80]
            nearest = difflib.get_close_matches(shown, names, 1, 0)[0]
            raise TypeError(f"{shown} is no field of {kind.__name__}; the nearest is {nearest}")
    found = {f.name: _read(value, f.name, str(f.type)) for f in fields(kind)}
    if all(item is None for item in found.values()):
        raise TypeError(f"{type(value).__name__} has no field of {kind.__name__}")
    return kind(**found)


def _read(value: Any, name: str, declared: str) -> Any:
    item = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    if item is None:
        return None
    nested = _NESTED.get(declared.removesuffix(" | None"))
    if nested is not None:
        return answer_of(nested, item)
    if "Array" in declared:
        return _array(name, item)
    if declared == "int":
        return _integer(item)
    if name == "paths":
        return tuple(tuple(map(int, path)) for path in item)
    if declared == "tuple[int, ...]":
        return tuple(map(int, item))
    if declared.startswith(("tuple[Mapping", "tuple[str")):
        # Documents, which come as a list from another process, and are no array either way.
        return tuple(item)
    return item


def _integer(item: Any) -> int:
    # A scalar of any library has `item`; a float is refused rather than rounded.
    return operator.index(item.item() if hasattr(item, "item") else item)


def arrays_of(prefix: str, value: Any) -> dict[str, Array]:
    """The arrays and numbers of a stage's value, under dotted trace names.

    A list or a number of another library is taken as the array that it is, since a value left out
    would not be judged. `TypeError` or `ValueError` where a field is no array of numbers at all.
    """
    found: dict[str, Array] = {}
    for name in value.__slots__:
        item = getattr(value, name)
        if is_dataclass(item):
            found.update(arrays_of(f"{prefix}.{name}", item))
        # Nothing is absent by mistake: `None` says so, and tuples are the paths of a tree's rows.
        elif item is not None and not isinstance(item, tuple):
            found[f"{prefix}.{name}"] = _array(f"{prefix}.{name}", item)
    return found


def _array(name: str, item: Any) -> Array:
    array = numpy_of(item)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} is no array of numbers")
    return array
