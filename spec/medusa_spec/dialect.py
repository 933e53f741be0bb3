"""Dialects: the lawful differences of an engine from the forms used here, as its adapter declares.

What is declared is normalised before anything is compared, and what is left must be equal. A
difference that leaves something unjudged is tolerated, and needs a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from medusa_spec.arrays import DType
from medusa_spec.documents import validate
from medusa_spec.errors import InputError


@dataclass(frozen=True, slots=True)
class Dialect:
    """One engine's forms; every default is the canonical one."""

    dtype: DType = "float64"
    """Of its forward pass: whose rounding is granted to logits, keys and values."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Fields that it holds fixed: `retrieval_order`, `sentinel`, `entropy_guard`. Tolerated."""
    choices: Literal["paths", "leaves", "branching"] = "paths"
    """The form of a tree that it takes: every node, maximal paths only, or branching factors."""
    node_order: Literal["canonical", "own"] = "canonical"
    """`own`: `TreeBuffers.paths` names the path of each of its rows."""
    mask: Literal["boolean", "additive", "packed8", "packed32", "packed64"] = "boolean"
    """Of a tree, and of a verification.

    Visible is not zero; is zero, hidden far below; or is a bit, the lowest of a word first.
    """
    mask_root: Literal["present", "absent"] = "present"
    """`absent`: a tree's mask has neither row nor column of the root, which every row sees."""
    positions: Literal["absolute", "relative"] = "absolute"
    """`relative`: those of a verification do not count the committed prefix."""
    slots: int | Literal["canonical", "own"] = "canonical"
    """A number is the constant stride of a depth; `own`: tokens are judged by node. Tolerated."""
    retrieval: Literal["declared", "own"] = "declared"
    """`own`: retrieval rows come in another order, and may be wider than the longest path."""
    pad_token: int | None = None
    """The token that stands in padded candidates, where a sentinel does not."""
    accepted: Literal["edges", "with-root", "with-bonus"] = "edges"
    """What accepted lengths count: suffix edges, the root too, or the next root as well."""
    posterior_input: Literal["logits", "probabilities"] = "logits"
    """What its selection is given for each path position."""
    topk_ties: Literal["lower-id", "any"] = "lower-id"
    """`any`: of tokens with equal logits any may take the rank. Tolerated."""
    kv_move: Literal["eager", "lazy"] = "eager"
    """`lazy`: committed rows are moved when they are next read. Tolerated."""
    labels: Literal["unshifted", "pre-shifted"] = "unshifted"
    """`pre-shifted`: it is given token `t + 1` at `t`, and so moves labels by one less."""
    empty_heads: Literal["skip", "reject"] = "skip"
    """`reject`: a batch in which some head has no owned label is refused as a whole. Tolerated."""
    end_of_sequence: Literal["commit", "loop"] = "commit"
    """`loop`: a commit publishes the whole path, and only `generate` ends. Tolerated."""
    refusals: Literal["refused", "any-error"] = "refused"
    """`any-error`: an exception answers what is unlawful. Tolerated."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why each tolerated difference is lawful for this engine."""

    @property
    def tolerated(self) -> tuple[str, ...]:
        """The declared differences that leave something unjudged."""
        loose = {
            "policy": bool(self.policy),
            "slots": self.slots == "own",
            "topk_ties": self.topk_ties == "any",
            "kv_move": self.kv_move == "lazy",
            "empty_heads": self.empty_heads == "reject",
            "end_of_sequence": self.end_of_sequence == "loop",
            "refusals": self.refusals == "any-error",
        }
        return tuple(name for name, declared in loose.items() if declared)

    @property
    def extra(self) -> int:
        """What its accepted length counts beside suffix edges."""
        return {"edges": 0, "with-root": 1, "with-bonus": 2}[self.accepted]

    def document(self) -> dict[str, Any]:
        """What differs from the canonical form, as the adapter wrote it."""
        plain, canonical = asdict(self), asdict(CANONICAL)
        return {name: value for name, value in plain.items() if value != canonical[name]}


CANONICAL = Dialect()
"""An engine without a dialect."""


def dialect_from(document: Any, source: str) -> Dialect:
    """The dialect that an adapter declares; `InputError` for an unknown key, form or no reason."""
    validate(document, "dialect", source)
    given = {f.name: document[f.name] for f in fields(Dialect) if f.name in document}
    dialect = Dialect(**given)
    for name in dialect.tolerated:
        if name not in dialect.reasons:
            rule = f"{name} leaves rules unjudged, so reasons needs a sentence under {name}"
            raise InputError(source, "reasons", rule)
    return dialect
