"""Commit, broken: a valid-looking output over a cache that belongs to another one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from medusa_mutations.catalog import mutant
from medusa_reference_engine.commit import CommitStage
from medusa_reference_engine.decoder import Cache
from medusa_reference_engine.round import RoundStage
from medusa_spec.arrays import FloatArray, IntArray
from medusa_spec.stages import CommitPlan, Frontier, TreeBuffers, Verification


def other_path(rows: IntArray, path: int, tree: TreeBuffers) -> IntArray:
    """As many rows of the next path that is long enough, the winner's own where none is."""
    for step in range(1, len(tree.retrieval)):
        entries = tree.retrieval[(path + step) % len(tree.retrieval), : len(rows)]
        if entries[-1] >= 0 and entries[-1] != rows[-1]:
            return entries
    return rows


@mutant("commit-a-rows")
class CommitARows(CommitStage):
    def published(self, accepted: int) -> int:
        return max(accepted, 1)


@mutant("commit-contiguous-suffix")
class CommitContiguousSuffix(CommitStage):
    def sources(self, rows: IntArray, committed: int) -> IntArray:
        return np.arange(committed, committed + len(rows))


@mutant("destination-off-by-one")
class DestinationOffByOne(CommitStage):
    def destinations(self, count: int, committed: int) -> IntArray:
        # The last row wraps to the front, so that none lands outside the cache.
        return np.roll(super().destinations(count, committed), -1)


@mutant("prefix-row-overwritten")
class PrefixRowOverwritten(CommitStage):
    def destinations(self, count: int, committed: int) -> IntArray:
        return super().destinations(count, committed) - 1


@mutant("keys-without-values")
class KeysWithoutValues(CommitStage):
    def move(self, cache: Cache, source: IntArray, destination: IntArray) -> None:
        cache.kv[:, :1, :, destination] = cache.kv[:, :1, :, source]


@mutant("first-layer-only")
class FirstLayerOnly(CommitStage):
    def move(self, cache: Cache, source: IntArray, destination: IntArray) -> None:
        cache.kv[:1, :, :, destination] = cache.kv[:1, :, :, source]


@mutant("aliased-copy")
class AliasedCopy(CommitStage):
    def move(self, cache: Cache, source: IntArray, destination: IntArray) -> None:
        # Row by row from the end, in place: a late destination may be an early source.
        for here, there in zip(source[::-1], destination[::-1], strict=True):
            cache.kv[:, :, :, there] = cache.kv[:, :, :, here]


@mutant("tokens-p-cache-q")
class TokensPCacheQ(CommitStage):
    def tokens(self, rows: IntArray, path: int, tree: TreeBuffers, packed: IntArray) -> IntArray:
        return packed[other_path(rows, path, tree)]


@mutant("frontier-of-other-path")
class FrontierOfOtherPath(CommitStage):
    def frontier(
        self, rows: IntArray, path: int, tree: TreeBuffers, verified: Verification
    ) -> Frontier:
        return super().frontier(other_path(rows, path, tree), path, tree, verified)


@mutant("frontier-of-predecessor")
class FrontierOfPredecessor(CommitStage):
    def frontier(
        self, rows: IntArray, path: int, tree: TreeBuffers, verified: Verification
    ) -> Frontier:
        return super().frontier(rows[:-1] if len(rows) > 1 else rows, path, tree, verified)


@mutant("head-frontier-of-root")
class HeadFrontierOfRoot(CommitStage):
    def head_frontier(self, rows: IntArray, verified: Verification) -> FloatArray:
        return verified.head_logits[:, 0]


@mutant("length-without-root")
class LengthWithoutRoot(CommitStage):
    def length(self, committed: int, count: int) -> int:
        return super().length(committed, count) - 1


@mutant("length-before-validation")
class LengthBeforeValidation(CommitStage):
    def check(self, path: int, accepted: int, tree: TreeBuffers, cache: Cache) -> None:
        cache.length += accepted + 1
        super().check(path, accepted, tree, cache)


@mutant("staging-overflow")
class StagingOverflow(CommitStage):
    def reserve(self, cache: Cache, nodes: int) -> None:
        # What does not fit behind the prefix is staged over its end.
        cache.length = min(cache.length, cache.capacity - nodes)


@mutant("prefill-truncates-prompt")
class PrefillTruncatesPrompt(RoundStage):
    def fitting(self, tokens: Sequence[int], cache: Cache) -> Sequence[int]:
        return tokens[-cache.capacity :]


@mutant("rejected-rows-visible")
class RejectedRowsVisible(CommitStage):
    def grow(self, cache: Cache, plan: CommitPlan, staged: int) -> None:
        cache.length = plan.length - len(plan.tokens) + staged


@mutant("tokens-after-end-of-sequence")
class TokensAfterEndOfSequence(CommitStage):
    def until_end(self, tokens: IntArray, end_of_sequence: int | None) -> int:
        return len(tokens)
