"""Array aliases, and the integer domains that must never be filled from one another (0x01B)."""

from __future__ import annotations

from typing import Any, Literal, NewType, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]

DType: TypeAlias = Literal["float64", "float32", "float16", "bfloat16"]
"""Of an engine's forward pass."""

Token = NewType("Token", int)
Rank = NewType("Rank", int)
HeadIndex = NewType("HeadIndex", int)
Slot = NewType("Slot", int)
PackedRow = NewType("PackedRow", int)
Depth = NewType("Depth", int)
Position = NewType("Position", int)
CacheRow = NewType("CacheRow", int)

RankPath: TypeAlias = tuple[int, ...]
"""Ranks from the root down: `(1, 0)` is rank 1 of head 0, then rank 0 of head 1."""


def numpy_of(value: Any) -> Array:
    """An array, a list or a number of any library, as a numpy array.

    `TypeError` or `ValueError` where it is none.
    """
    # A tensor on a card, or one that records gradients, has to be asked for its numbers.
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        # numpy has no such type, and every number of it is one of float32's.
        value = value.float() if "bfloat16" in str(value.dtype) else value
    return np.asarray(value)
