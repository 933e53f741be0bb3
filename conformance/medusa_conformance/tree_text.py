"""The tree of a finding in plain text, with the row that the finding is about marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from medusa_conformance.place import PACKED, packed_key, planned
from medusa_oracles.tree import derive_parents, tree_of
from medusa_spec.coordinate import Coordinate
from medusa_spec.registry import invariants
from medusa_spec.stages import TreeBuffers

if TYPE_CHECKING:
    from medusa_conformance.runner import Located
    from medusa_spec.findings import Finding

WHOLE = 24
"""Rows of the largest tree that is drawn whole; of a larger one the way to the marked rows is."""

WIDTH = 86
"""Columns of a drawing: with its label before it, it fits a terminal of a hundred."""

BRANCHES = 36
"""Columns of the branches; what lies deeper begins behind an ellipsis."""

SEES = "must see"
"""What stands above the cells, which are those of the oracle."""

MASKS = ("TREE.MASK_IS_ANCESTRY", "VERIFICATION.RECTANGULAR_MASK")
"""Rules over what a row sees."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One row of the tree, or the rows of some subtrees that are not drawn."""

    row: int | None
    branches: str


def draw_tree(located: Located) -> str | None:
    """The tree, one packed row a line; `None` where the finding has no place in it."""
    finding = located.finding
    contract = invariants()[finding.code].contract
    coordinate = planned(located.coordinate, located.generation, contract)
    if coordinate is None:
        return None
    tree = tree_of(coordinate)
    marks = {row: text for row, text in _marks(located, coordinate, tree) if row < len(tree.paths)}
    if not marks:
        return None
    offending = list(marks)[-1]
    lines = list(_lines(tree, marks))
    shown = [line.row for line in lines if line.row is not None]
    strips = finding.code in MASKS and len(tree.paths) <= WHOLE
    digits = max(3, len(str(max(shown))))
    width = max(4, *(len(line.branches) for line in lines))
    cells_wide = max(len(SEES), len(tree.paths))
    sees = f"  {SEES:{cells_wide}}" if strips else ""
    drawn = [f"  {'row':>{digits}}  {'rank':{width}}  depth{sees}"]
    for line in lines:
        if line.row is None:
            drawn.append(f"  {'':{digits}}  {line.branches}")
            continue
        mark = ">" if line.row == offending else " "
        cells = f"  {_strip(tree, line.row):{cells_wide}}" if strips else ""
        depth = int(tree.depths[line.row])
        text = f"{mark} {line.row:>{digits}}  {line.branches:{width}}  {depth:>5}{cells}"
        text += f"  {marks[line.row]}" if line.row in marks else ""
        drawn.append(text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…")
    return "\n".join(line.rstrip() for line in drawn)


def _marks(
    located: Located, coordinate: Coordinate, tree: TreeBuffers
) -> Iterator[tuple[int, str]]:
    """Packed rows that a finding names, and what is said of each; the offending row comes last."""
    finding = located.finding
    where, contract = finding.where, invariants()[finding.code].contract
    if "row" in where and contract in PACKED:
        if "key" in where:
            key = packed_key(coordinate, contract, where["key"], located.round)
            if key is not None and key != where["row"]:
                yield key, f"key {where['key']}"
        yield where["row"], f"row {where['row']}{_said(finding)}"
    elif "path" in where and 0 <= where["path"] < len(tree.retrieval):
        rows = [row for row in tree.retrieval[where["path"]].tolist() if row >= 0]
        # Edge i leads to entry i + 1; behind the end of a path stands its padding.
        entry = where.get("entry", where.get("edge", len(rows) - 2) + 1)
        place = f"path {where['path']}"
        if "edge" in where or "entry" in where:
            place += f", entry {entry}"
        place += ", behind its end" if entry >= len(rows) else ""
        yield rows[min(entry, len(rows) - 1)], f"{place}{_said(finding)}"


def _said(finding: Finding) -> str:
    """What is there and what must be, of a mask's cell or of one number."""
    expected, observed = finding.expected, finding.observed
    if finding.code in MASKS and isinstance(expected, bool):
        words = {True: "seen", False: "hidden"}
        ours, theirs = words[bool(expected)], words[bool(observed)]
        return f": key {finding.where['key']} must be {ours} and is {theirs}"
    if all(isinstance(side, int | float | np.number) for side in (expected, observed)):
        return f": {_number(observed)}, must be {_number(expected)}"
    return ""


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def _strip(tree: TreeBuffers, row: int) -> str:
    return "".join("█" if seen else "·" for seen in tree.mask[row])


def _lines(tree: TreeBuffers, marks: Mapping[int, str]) -> Iterator[_Line]:
    """The tree depth first, children by their rank."""
    parents = derive_parents(tree.paths).tolist()
    children: dict[int, list[int]] = {}
    for row, parent in enumerate(parents):
        children.setdefault(parent, []).append(row)
    kept = set(range(len(parents)))
    if len(parents) > WHOLE:
        kept = {above for row in marks for above in _upwards(row, parents)}
    below = _sizes(parents)
    pending = [_Step(0, "", "")]
    while pending:
        step = pending.pop()
        if step.row is None:
            yield _Line(None, _clipped(f"{step.lead}{step.joint}… {step.hidden} more"))
            continue
        rank = "root" if not tree.paths[step.row] else str(tree.paths[step.row][-1])
        yield _Line(step.row, _clipped(f"{step.lead}{step.joint}{rank}"))
        lead = step.lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[step.joint]
        pending += reversed(_steps(children.get(step.row, []), kept, below, lead))


@dataclass(frozen=True, slots=True)
class _Step:
    """A line still to be drawn: a row, or `hidden` rows that are not drawn one by one."""

    row: int | None
    lead: str
    joint: str
    hidden: int = 0


def _steps(children: Sequence[int], kept: set[int], below: Sequence[int], lead: str) -> list[_Step]:
    """One step for each child that is kept, and one for each run of those that are not."""
    runs: list[tuple[int | None, int]] = []
    for child in children:
        if child in kept:
            runs.append((child, 0))
        elif runs and runs[-1][0] is None:
            runs[-1] = None, runs[-1][1] + below[child]
        else:
            runs.append((None, below[child]))
    last = len(runs) - 1
    return [
        _Step(row, lead, "└─ " if place == last else "├─ ", hidden)
        for place, (row, hidden) in enumerate(runs)
    ]


def _upwards(row: int, parents: Sequence[int]) -> Iterator[int]:
    while row >= 0:
        yield row
        row = parents[row]


def _sizes(parents: Sequence[int]) -> list[int]:
    """Rows of each subtree, its own root counted."""
    sizes = [1] * len(parents)
    for row in range(len(parents) - 1, 0, -1):
        sizes[parents[row]] += sizes[row]
    return sizes


def _clipped(branches: str) -> str:
    return branches if len(branches) <= BRANCHES else f"…{branches[1 - BRANCHES :]}"
