"""Array aliases, and the integer domains that must never be filled from one another (0x01B)."""

from __future__ import annotations

from typing import Any, NewType, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]

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
