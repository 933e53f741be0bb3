"""Tree compilation: rows, parents, and what follows from walking up them (0x03, 0x04A)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from medusa_spec.arrays import BoolArray, IntArray, RankPath
from medusa_spec.stages import TreeBuffers


class TreeStage:
    """Clauses T1 to T10. The root is its own parent nowhere: it has -1."""

    def compile(
        self, paths: Sequence[RankPath], topk: int, retrieval_order: str, sentinel: int
    ) -> TreeBuffers:
        """The four buffers of a prefix-closed path set."""
        order = self.row_order([tuple(path) for path in paths])
        row_of = {path: row for row, path in enumerate(order)}
        parents = [row_of[path[:-1]] if path else -1 for path in order]
        slots = [self.slot(path, row, topk) for row, path in enumerate(order)]
        depths = [self.depth(path, row) for row, path in enumerate(order)]
        lines = self.lines(parents)
        if retrieval_order == "pinned":
            lines.reverse()
        return TreeBuffers(
            tuple(order),
            np.array(slots, np.int64),
            self.mask(parents),
            np.array(depths, np.int64),
            self.pad(lines, sentinel),
        )

    def row_order(self, paths: Sequence[RankPath]) -> list[RankPath]:
        """Clause T1."""
        return [(), *sorted(paths, key=lambda path: (len(path), path))]

    def slot(self, path: RankPath, row: int, topk: int) -> int:
        """Clause T2; a row's number is at hand and must not be used."""
        return 1 + (len(path) - 1) * topk + path[-1] if path else 0

    def depth(self, path: RankPath, row: int) -> int:
        """Clause T4."""
        return len(path)

    def mask(self, parents: Sequence[int]) -> BoolArray:
        """Clause T3: each row sees itself and every row on its way up."""
        mask = np.zeros((len(parents), len(parents)), np.bool_)
        for row in range(len(parents)):
            for seen in self.visible(row, parents):
                mask[row, seen] = True
        return mask

    def visible(self, row: int, parents: Sequence[int]) -> list[int]:
        """The rows that one row sees."""
        return climb(row, parents)

    def lines(self, parents: Sequence[int]) -> list[list[int]]:
        """Clauses T5 and T6: a root-to-leaf line of rows for each row that nobody calls parent."""
        return [climb(row, parents)[::-1] for row in self.ends(parents)]

    def ends(self, parents: Sequence[int]) -> list[int]:
        """The leaves, in row order."""
        inner = set(parents)
        return [row for row in range(len(parents)) if row not in inner]

    def pad(self, lines: Sequence[Sequence[int]], sentinel: int) -> IntArray:
        """Clause T7."""
        width = max(map(len, lines))
        return np.array([[*line, *[sentinel] * (width - len(line))] for line in lines], np.int64)

    def node_count(self, branching: Sequence[int]) -> int:
        """Clause T10: candidate nodes of regular branching, level by level."""
        total, level = 0, 1
        for width in branching:
            level *= width
            total += level
        return total


def climb(row: int, parents: Sequence[int]) -> list[int]:
    """A row and its ancestors, the root last."""
    line = []
    while row >= 0:
        line.append(row)
        row = parents[row]
    return line
