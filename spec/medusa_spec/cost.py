"""What an engine answers of a workload: the ledger of one round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from medusa_spec.arrays import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class CostLedger:
    """What one round of a workload takes (0x07B-0x07D). FLOPs are two a multiply-add."""

    head_parameters: int
    """Parameters that the heads add to the base model."""
    head_bytes: int
    """What they take at the workload's bytes a scalar."""
    head_rows: int
    """`T_h`, rows on which each head runs."""
    residual_flops: int
    """Of the residual blocks of all heads."""
    projection_flops: int
    """Of the vocabulary projections of all heads, whoever owns the weights."""
    lm_flops: int
    """Of the base model's own vocabulary projection."""
    dense_pairs: int
    """Pairs of a row and a key that are scored in each layer and attention head."""
    allowed_pairs: int
    """Those of them that the mask leaves."""
    logit_elements: int
    """Elements of the target's logits."""
    head_logit_elements: int
    """Elements of the heads' logits."""
    path_logit_elements: int
    """Elements of the logits gathered along the retrieval rows."""
    staged_bytes: int
    """Keys and values of all packed rows in all layers."""
    committed_bytes: int
    """Keys and values of the published rows in all layers."""
    overhead: FloatArray | None
    """One number, a round in baseline steps; `None` without a profile, as the next two."""
    speedup: FloatArray | None
    """One number, published tokens a round over the overhead."""
    breaks_even: BoolArray | None
    """One truth value."""
    claim: Mapping[str, Any]
    """What the figures are: `counts` and `profile` kinds of evidence, `batch` sequences."""


COUNTS = tuple(field.name for field in fields(CostLedger) if field.type == "int")
"""What is counted, each a whole number."""

RATES = ("overhead", "speedup", "breaks_even")
"""What a profile adds to it."""
