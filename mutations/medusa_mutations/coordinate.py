"""Admission, broken: documents that must be refused are decoded, or decoded as something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medusa_mutations.catalog import mutant
from medusa_reference_engine.coordinate import AdmissionStage
from medusa_spec.documents import schema_errors
from medusa_spec.errors import Refused


@mutant("unknown-field-ignored")
class UnknownFieldIgnored(AdmissionStage):
    def check_schema(self, document: Mapping[str, Any]) -> None:
        for field, rule in schema_errors(document, "coordinate"):
            if "Additional properties" not in rule:
                raise Refused(f"{field}: {rule}")


@mutant("pin-hash-stale")
class PinHashStale(AdmissionStage):
    def check_digest(self, name: str, digest: str, pinned: Mapping[str, str]) -> None:
        if name not in pinned:
            raise Refused(f"{name} is not pinned")


@mutant("pin-mixes-legacy-and-current")
class PinMixesLegacyAndCurrent(AdmissionStage):
    def check_variant(self, source: Mapping[str, Any]) -> None:
        pass


@mutant("prefix-length-off-by-one")
class PrefixLengthOffByOne(AdmissionStage):
    def prefix_length(self, document: Mapping[str, Any]) -> int:
        return super().prefix_length(document) + 1


@mutant("duplicate-path")
class DuplicatePath(AdmissionStage):
    def check_distinct(self, node: Mapping[int, Any], rank: int) -> None:
        pass


@mutant("missing-ancestor")
class MissingAncestor(AdmissionStage):
    def ancestor(self, node: dict[int, Any], step: int) -> dict[int, Any]:
        child: dict[int, Any] = node.setdefault(step, {})
        return child


@mutant("rank-aliases-next-head")
class RankAliasesNextHead(AdmissionStage):
    def check_rank(self, rank: int, topk: int) -> None:
        if rank < 0:
            super().check_rank(rank, topk)


@mutant("depth-beyond-heads")
class DepthBeyondHeads(AdmissionStage):
    def check_depth(self, depth: int, heads: int) -> None:
        pass


@mutant("capacity-forgets-root")
class CapacityForgetsRoot(AdmissionStage):
    def check_capacity(self, prefix: int, paths: int, capacity: int) -> None:
        super().check_capacity(prefix, paths - 1, capacity)


@mutant("domain-alias-slot-row")
class DomainAliasSlotRow(AdmissionStage):
    def slot(self, row: int, head: int | None, path: Sequence[int], topk: int) -> int:
        return row


@mutant("epsilon-alpha-swapped")
class EpsilonAlphaSwapped(AdmissionStage):
    def policy(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        policy = super().policy(document)
        return {**policy, "epsilon": policy["alpha"], "alpha": policy["epsilon"]}


@mutant("token-outside-vocabulary")
class TokenOutsideVocabulary(AdmissionStage):
    def check_tokens(self, document: Mapping[str, Any]) -> None:
        pass


@mutant("full-cache-rejected")
class FullCacheRejected(AdmissionStage):
    def check_capacity(self, prefix: int, paths: int, capacity: int) -> None:
        super().check_capacity(prefix, paths + 1, capacity)
