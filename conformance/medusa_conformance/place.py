"""Where a finding points: which tree it speaks of, and which packed row it names."""

from __future__ import annotations

from medusa_conformance.crafted import RENEWED, lesser
from medusa_spec.coordinate import Coordinate

PACKED = ("coordinate", "tree", "proposal", "verification")
"""Contracts whose findings name packed rows, or entries of retrieval rows."""


def planned(coordinate: Coordinate, generation: int, contract: str) -> Coordinate | None:
    """The coordinate whose tree a finding speaks of, `None` where that cannot be told.

    A coordinate with an earlier generation has two trees: that one's is generation 0. Where rounds
    follow what changed nothing, they are over a lesser tree.
    """
    if generation == RENEWED:
        return lesser(coordinate)
    if coordinate.earlier is None or generation:
        return coordinate
    if contract == "verification":
        # Only rounds verify, and the rounds of this generation are over the earlier tree.
        return coordinate.before
    return coordinate if contract in ("coordinate", "tree") else None


def packed_key(coordinate: Coordinate, contract: str, key: int, round_: int) -> int | None:
    """The packed row behind a column of a mask, `None` where it is none or cannot be told.

    A verification's mask has the committed rows before those of `coordinate`, the planned one.
    """
    if contract != "verification":
        return key
    # Later rounds stand behind what the earlier ones published, which a finding does not say.
    row = key - len(coordinate.prefix)
    return row if round_ == 0 and row >= 0 else None
