"""The coordinate: everything that freezes one round, as immutable values (0x01A)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from medusa_spec.arrays import CacheRow, Depth, HeadIndex, PackedRow, Position, Rank, RankPath, Slot
from medusa_spec.claims import Facts

RetrievalOrder: TypeAlias = Literal["canonical", "pinned"]
Mode: TypeAlias = Literal["greedy", "fast-typical"]
Projection: TypeAlias = Literal["independent", "shared"]
Variant: TypeAlias = Literal["medusa-1", "medusa-2", "self-distilled"]
TableForm: TypeAlias = Literal["cumulative", "incremental"]
Evidence: TypeAlias = Literal["derived", "synthetic", "measured", "source-reported"]
HeadRows: TypeAlias = Literal["all", "terminal"]
SamplingMode: TypeAlias = Literal[
    "greedy",
    "fast-typical",
    "typical-per-path",
    "nucleus-per-path",
    "row-draw",
    "rejection",
    "rejection-uncorrected",
]


@dataclass(frozen=True, slots=True)
class Source:
    """The revision that a coordinate speaks of, and the code path through it (0x01C).

    `files` maps a path of the repository to the SHA-256 of its content.
    """

    repository: str
    commit: str
    variant: Literal["current", "legacy"]
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Policy:
    """How candidates are chosen, ordered and accepted; always written out in full.

    `temperature` divides logits before the softmax and is 0 for greedy. `epsilon` is the hard
    ceiling of the typical threshold, a probability; `alpha` scales `exp(-entropy)`.
    `entropy_guard` is added to a probability inside the logarithm. `sentinel` is the negative
    padding of a retrieval row.
    """

    mode: Mode
    temperature: float
    epsilon: float
    alpha: float
    top_p: float
    entropy_guard: float
    comparison: Literal[">"]
    tie_rule: Literal["first-maximal-path", "greatest-likelihood"]
    retrieval_order: RetrievalOrder
    sentinel: int
    seed: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder with Medusa heads: its sizes, and the seed of its weights.

    `head_blocks` is the number of residual blocks per Medusa head (`R_h` in 0x02A).
    """

    layers: int
    hidden: int
    attention_heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    rope_theta: float
    rms_epsilon: float
    head_blocks: int
    projection: Projection
    weight_seed: int

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.attention_heads


@dataclass(frozen=True, slots=True)
class Ranking:
    """The proposal frontier written as tokens: the root, and each head's ranks in order."""

    root: int
    heads: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class RowPosterior:
    """The target distribution at one tree row: named probabilities, and `rest` shared evenly."""

    path: RankPath
    probabilities: Mapping[int, float]
    rest: float


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A round steered by its path logits so that `edges` edges of `path` are acceptable."""

    path: RankPath
    edges: int


@dataclass(frozen=True, slots=True)
class Generation:
    """What the engine decoded before this round: its next one must start clean."""

    prefix: tuple[int, ...]
    paths: tuple[RankPath, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Accuracies of heads, a row a head, and the budget to build a tree for them with (0x04B).

    A row of a "cumulative" table is top-1, top-2 and so on; one of an "incremental" table is the
    mass of each rank alone. `nodes` are paths, and so do not count the root; of each row the first
    `max_rank` ranks are used. The other fields say what the accuracies were measured on, under
    which acceptance policy, and what kind of figures they are.
    """

    form: TableForm
    accuracy: tuple[tuple[float, ...], ...]
    nodes: int
    max_rank: int
    model: str
    data_set: str
    prompts: str
    policy: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn and accepted; always written out in full (0x04F).

    `temperature` divides logits before the softmax and is 0 for greedy alone. The typical modes cut
    a row by `epsilon`, `alpha` and `entropy_guard`, as in a `Policy`; the others by `top_p`, but
    for greedy, which leaves the most likely token alone.
    """

    mode: SamplingMode
    temperature: float
    epsilon: float
    alpha: float
    entropy_guard: float
    top_p: float

    @property
    def rejects(self) -> bool:
        """Whether candidates are drawn, and may be rejected by chance."""
        return self.mode.startswith("rejection")


@dataclass(frozen=True, slots=True)
class Exactness:
    """A model of `V` tokens that is a table, and the law that is asked of a mode over it (0x04F).

    A row of a table holds small integer weights, and its probabilities are the weights over their
    sum. `model` `[1 + V, V]` has a row for the start and one behind each token: the next token
    depends on the last one alone. `drafts` `[K, 1 + V, V]` are the heads'; they know the last
    published token, and not the root that follows it. The law is that of the first `length`
    published tokens; `samples` sequences are drawn with `seed`.
    """

    model: tuple[tuple[int, ...], ...]
    drafts: tuple[tuple[tuple[int, ...], ...], ...]
    paths: tuple[RankPath, ...]
    sampling: Sampling
    length: int
    samples: int
    seed: int

    @property
    def vocabulary(self) -> int:
        """Tokens of the table, `V`."""
        return len(self.model[0])


@dataclass(frozen=True, slots=True)
class Training:
    """A batch `[B, S]`, and how the heads, and by the variant the backbone, learn from it (0x05).

    `owned` is the loss mask: whether the objective owns a token, where it is a label. For
    `medusa-1` the backbone is frozen, its rate is 0 and `medusa_weight` 1. `head_weights` are
    `lambda_k`, one a head; `medusa_weight` is `lambda_0`. In `two-stage` the heads train alone for
    `warm_up` steps; in `ramp` the backbone trains from the first step, and `lambda_0` grows over
    those steps. `adapter_rank` is that of LoRA updates of the backbone; 0 trains its own weights.
    """

    variant: Variant
    tokens: tuple[tuple[int, ...], ...]
    owned: tuple[tuple[bool, ...], ...]
    head_weights: tuple[float, ...]
    medusa_weight: float
    head_rate: float
    backbone_rate: float
    schedule: Literal["two-stage", "ramp"]
    warm_up: int
    steps: int
    adapter_rank: int


@dataclass(frozen=True, slots=True)
class Release:
    """What a checkpoint of these heads stands for, beside the sizes of its model (0x05D).

    The base model and its tokenizer are named by exact revisions. Heads of `medusa-1` stand on the
    unchanged base; those of the other variants on the backbone of the coordinate's own training.
    """

    base: str
    base_revision: str
    tokenizer: str
    variant: Variant


@dataclass(frozen=True, slots=True)
class CostProfile:
    """What a round and an ordinary decoding step took, in one `unit`, and what came of it (0x07D).

    `published` are the tokens of all `rounds` together, so the expected ones of a round are their
    ratio. `evidence` says what kind of figures these are.
    """

    baseline_step: float
    round: float
    unit: str
    rounds: int
    published: int
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Workload:
    """The sizes of one round whose cost is counted, and none of whose tensors is made (0x07B).

    They are its own, since those of `Coordinate.model` are allocated. `prefix` are committed rows,
    `P`; `paths` is the tree without its root. `head_rows` says where heads run: on all packed rows,
    as the pinned release does, or on the winner's terminal row alone. `scalar_bytes` are those of a
    parameter and of a key or value. `published` is what the round commits, `G`.
    """

    prefix: int
    paths: tuple[RankPath, ...]
    heads: int
    head_rows: HeadRows
    layers: int
    hidden: int
    attention_heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    head_blocks: int
    projection: Projection
    scalar_bytes: int
    published: int
    batch: int
    profile: CostProfile | None

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.attention_heads


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One frozen round.

    `rounds` has one entry a round: `None` where the engine's own logits decide, an `Acceptance`
    where the path logits are steered. `posterior`, where given, is what the posterior judges
    instead; rows that it does not name are uniform. `ranking`, where given, replaces the frontier
    that the proposal reads. Beside any round, `search` is what a tree is to be built from,
    `exactness` a table model of which an output law is asked, `training` what its model's heads
    learn from, `release` what a checkpoint of them says that they are, `cost` the sizes of a round
    that is counted and not decoded, and `claims` what is known of figures to be published.
    """

    name: str
    source: Source
    prefix: tuple[int, ...]
    prefix_length: int
    topk: int
    heads: int
    paths: tuple[RankPath, ...]
    policy: Policy
    capacity: int
    end_of_sequence: int | None
    model: ModelShape
    rounds: tuple[Acceptance | None, ...] = (None,)
    ranking: Ranking | None = None
    posterior: tuple[RowPosterior, ...] = ()
    earlier: Generation | None = None
    branching: tuple[int, ...] | None = None
    search: Calibration | None = None
    exactness: Exactness | None = None
    training: Training | None = None
    release: Release | None = None
    cost: Workload | None = None
    claims: Facts | None = None
    expected: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        """Packed rows with the root, `N`."""
        return len(self.paths) + 1

    @property
    def before(self) -> Coordinate | None:
        """The earlier generation as an unsteered coordinate of its own; `None` without one."""
        if self.earlier is None:
            return None
        prefix = self.earlier.prefix
        return replace(
            self.with_tree(self.earlier.paths),
            prefix=prefix,
            prefix_length=len(prefix),
            ranking=None,
            posterior=(),
        )

    def with_tree(self, paths: tuple[RankPath, ...]) -> Coordinate:
        """The same coordinate over another tree, unsteered; `expected` does not carry over.

        Of a posterior the rows stay that the other tree has.
        """
        kept = tuple(row for row in self.posterior if row.path in ((), *paths))
        return replace(
            self, paths=paths, rounds=(None,), branching=None, posterior=kept, expected={}
        )

    def document(self) -> dict[str, Any]:
        """The coordinate as the plain document that `coordinate.schema.json` describes."""
        plain: dict[str, Any] = _plain(asdict(self))
        beside = ("search", "exactness", "training", "release", "cost", "claims")
        for optional in ("ranking", "earlier", "branching", *beside):
            if plain[optional] is None:
                del plain[optional]
        for optional in ("posterior", "expected"):
            if not plain[optional]:
                del plain[optional]
        return plain


@dataclass(frozen=True, slots=True)
class RowCoordinates:
    """One packed row in every integer domain at once (0x01B); the root has no rank and no head."""

    row: PackedRow
    rank: Rank | None
    head: HeadIndex | None
    slot: Slot
    depth: Depth
    position: Position
    cache_row: CacheRow


def canonical_order(paths: Any) -> tuple[RankPath, ...]:
    """Paths sorted by `(length, path)`: the row order of the tree, without the root (0x04A)."""
    return tuple(sorted((tuple(p) for p in paths), key=lambda p: (len(p), p)))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        # JSON has string keys only, and a YAML manifest is held to the same document.
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
