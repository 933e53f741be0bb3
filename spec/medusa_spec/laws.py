"""What an engine answers of a mode: its output law, or sequences drawn from it (0x04F).

Shapes: `V` tokens of a table, `K` heads, `U` rank paths, sequences of `T` tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from medusa_spec.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class OutputLaw:
    """What a mode publishes over a table model: every sequence with its probability.

    Sequences are in lexicographic order: the one of tokens `t_1 .. t_T` has the index that these
    digits have to the base `V`.
    """

    roots: FloatArray
    """`[1 + V, V]`, the processed row of a root: at the start, and behind each token."""
    rows: FloatArray
    """`[V, V]`, the processed row of a tree node with each token."""
    law: FloatArray
    """`[V**T]`, the probability of each published sequence."""
    target: FloatArray
    """`[V**T]`, the same where one token after the other is drawn from the processed rows."""
    distance: FloatArray
    """One number, the total variation between the two."""
    path_probability: FloatArray | None
    """`[1 + V, U]`, how probable the tokens of each rank path are behind the root; `None` where the
    engine claims no such number."""
    proposal: FloatArray | None
    """`[K, 1 + V, V]`, the stored probabilities of drafts; `None` where none are drawn."""
    claim: Mapping[str, Any]
    """What is claimed: `mode`, `claim`, what the `scores` of paths are, whether it `rejects`, and
    then its `correction`."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Sequences that were drawn, one a row."""

    tokens: IntArray
    """`[count, T]`"""
