"""Tree compilation, broken: one of the four coupled buffers says something else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from medusa_mutations.catalog import mutant
from medusa_reference_engine.tree import TreeStage, climb
from medusa_spec.arrays import BoolArray, IntArray, RankPath
from medusa_spec.stages import TreeBuffers


@mutant("rows-sorted-by-path")
class RowsSortedByPath(TreeStage):
    def row_order(self, paths: Sequence[RankPath]) -> list[RankPath]:
        return [(), *sorted(paths)]


@mutant("position-from-row")
class PositionFromRow(TreeStage):
    def depth(self, path: RankPath, row: int) -> int:
        return row


@mutant("position-root-is-one")
class PositionRootIsOne(TreeStage):
    def depth(self, path: RankPath, row: int) -> int:
        return len(path) + 1


@mutant("sibling-visible")
class SiblingVisible(TreeStage):
    def visible(self, row: int, parents: Sequence[int]) -> list[int]:
        siblings = [other for other, parent in enumerate(parents) if parent == parents[row]]
        return climb(row, parents) + siblings


@mutant("causal-triangle-for-tree")
class CausalTriangleForTree(TreeStage):
    def visible(self, row: int, parents: Sequence[int]) -> list[int]:
        return list(range(row + 1))


@mutant("self-invisible")
class SelfInvisible(TreeStage):
    def visible(self, row: int, parents: Sequence[int]) -> list[int]:
        return climb(row, parents)[1:]


@mutant("root-invisible")
class RootInvisible(TreeStage):
    def visible(self, row: int, parents: Sequence[int]) -> list[int]:
        return [seen for seen in climb(row, parents) if seen or not row]


@mutant("grandparent-invisible")
class GrandparentInvisible(TreeStage):
    def visible(self, row: int, parents: Sequence[int]) -> list[int]:
        line = climb(row, parents)
        return line[:2] + line[3:]


@mutant("slot-without-root-offset")
class SlotWithoutRootOffset(TreeStage):
    def slot(self, path: RankPath, row: int, topk: int) -> int:
        return super().slot(path, row, topk) - 1 if path else 0


@mutant("slot-is-row")
class SlotIsRow(TreeStage):
    def slot(self, path: RankPath, row: int, topk: int) -> int:
        # Wrapped, so that the gather stays inside the candidates of the heads so far.
        return row % (1 + len(path) * topk)


@mutant("slot-without-depth")
class SlotWithoutDepth(TreeStage):
    def slot(self, path: RankPath, row: int, topk: int) -> int:
        return 1 + path[-1] if path else 0


class _AfterCompile(TreeStage, ABC):
    """Corrupts the buffers once they are whole."""

    def compile(
        self, paths: Sequence[RankPath], topk: int, retrieval_order: str, sentinel: int
    ) -> TreeBuffers:
        return self.corrupt(super().compile(paths, topk, retrieval_order, sentinel))

    @abstractmethod
    def corrupt(self, tree: TreeBuffers) -> TreeBuffers:
        """The buffers that are given instead."""


def _reversed_rows(nodes: int) -> IntArray:
    """The root in place, every other row in the opposite order."""
    return np.concatenate([[0], np.arange(nodes - 1, 0, -1)]).astype(np.int64)


@mutant("permute-only-tree-indices")
class PermuteOnlyTreeIndices(_AfterCompile):
    def corrupt(self, tree: TreeBuffers) -> TreeBuffers:
        return replace(tree, slots=tree.slots[_reversed_rows(len(tree.slots))])


@mutant("permute-only-mask")
class PermuteOnlyMask(_AfterCompile):
    def corrupt(self, tree: TreeBuffers) -> TreeBuffers:
        order = _reversed_rows(len(tree.slots))
        mask: BoolArray = tree.mask[order][:, order]
        return replace(tree, mask=mask)


@mutant("permute-only-positions")
class PermuteOnlyPositions(_AfterCompile):
    def corrupt(self, tree: TreeBuffers) -> TreeBuffers:
        return replace(tree, depths=tree.depths[_reversed_rows(len(tree.slots))])


@mutant("permute-only-retrieval")
class PermuteOnlyRetrieval(_AfterCompile):
    def corrupt(self, tree: TreeBuffers) -> TreeBuffers:
        order, retrieval = _reversed_rows(len(tree.slots)), tree.retrieval
        return replace(tree, retrieval=np.where(retrieval < 0, retrieval, order[retrieval]))


@mutant("second-sort-key")
class SecondSortKey(_AfterCompile):
    def corrupt(self, tree: TreeBuffers) -> TreeBuffers:
        row_of = {path: row for row, path in enumerate(sorted(tree.paths))}
        order = np.array([row_of[path] for path in tree.paths])
        retrieval = tree.retrieval
        return replace(tree, retrieval=np.where(retrieval < 0, retrieval, order[retrieval]))


@mutant("duplicate-tokens-merged")
class DuplicateTokensMerged(_AfterCompile):
    def corrupt(self, tree: TreeBuffers) -> TreeBuffers:
        slots = tree.slots.tolist()
        first = np.array([slots.index(slot) for slot in slots])
        retrieval = tree.retrieval
        return replace(tree, retrieval=np.where(retrieval < 0, retrieval, first[retrieval]))


@mutant("retrieval-order-ignored")
class RetrievalOrderIgnored(_AfterCompile):
    def corrupt(self, tree: TreeBuffers) -> TreeBuffers:
        return replace(tree, retrieval=tree.retrieval[::-1].copy())


@mutant("retrieval-drops-leaf")
class RetrievalDropsLeaf(TreeStage):
    def lines(self, parents: Sequence[int]) -> list[list[int]]:
        lines = super().lines(parents)
        # Another path is listed twice in its place, so that the shape stays.
        return [lines[-1], *lines[1:]]


@mutant("retrieval-has-inner-path")
class RetrievalHasInnerPath(TreeStage):
    def lines(self, parents: Sequence[int]) -> list[list[int]]:
        first, *others = super().lines(parents)
        return [first[:-1] if others else first, *others]


@mutant("retrieval-not-a-chain")
class RetrievalNotAChain(TreeStage):
    def lines(self, parents: Sequence[int]) -> list[list[int]]:
        *others, last = super().lines(parents)
        strangers = [row for row, parent in enumerate(parents) if parent == 0 and row not in last]
        if len(last) > 2 and strangers:
            last = [last[0], strangers[0], *last[2:]]
        return [*others, last]


@mutant("sentinel-is-zero")
class SentinelIsZero(TreeStage):
    def pad(self, lines: Sequence[Sequence[int]], sentinel: int) -> IntArray:
        return super().pad(lines, 0)


@mutant("sentinel-in-the-middle")
class SentinelInTheMiddle(TreeStage):
    def pad(self, lines: Sequence[Sequence[int]], sentinel: int) -> IntArray:
        width = max(map(len, lines))
        padded = [[*line[:-1], *[sentinel] * (width - len(line)), line[-1]] for line in lines]
        return np.array(padded, np.int64)


@mutant("cumulative-node-count")
class CumulativeNodeCount(TreeStage):
    def node_count(self, branching: Sequence[int]) -> int:
        return sum(
            super(CumulativeNodeCount, self).node_count(branching[: level + 1])
            for level in range(len(branching))
        )
