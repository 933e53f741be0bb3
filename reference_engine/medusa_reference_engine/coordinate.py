"""Admission: the engine reads a coordinate document and refuses what it cannot decode (0x01).

Paths are entered into a trie one by one, so that closure and distinctness fall out of the walk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medusa_spec.documents import schema_errors
from medusa_spec.errors import Refused
from medusa_spec.loading import source_pin
from medusa_spec.stages import Admission


class AdmissionStage:
    """Clauses C1 to C12."""

    def admit(self, document: Mapping[str, Any]) -> Admission:
        """The coordinate as understood, or `Refused` before anything was changed."""
        self.check_schema(document)
        self.check_source(document["source"])
        prefix_length = self.prefix_length(document)
        for tree in (document, document.get("earlier")):
            if tree is not None:
                self.check_tree(tree["paths"], document["topk"], document["heads"])
                self.check_capacity(len(tree["prefix"]), len(tree["paths"]), document["capacity"])
        self.check_tokens(document)
        admitted = {**document, "prefix_length": prefix_length, "policy": self.policy(document)}
        return Admission(admitted, tuple(self.rows(admitted)))

    def check_schema(self, document: Mapping[str, Any]) -> None:
        """Clause C1."""
        for field, rule in schema_errors(document, "coordinate"):
            raise Refused(f"{field}: {rule}")

    def check_source(self, source: Mapping[str, Any]) -> None:
        """Clause C2."""
        pin = source_pin()
        if (source["repository"], source["commit"]) != (pin["repository"], pin["commit"]):
            raise Refused("another repository or commit than the pin")
        self.check_variant(source)
        for name, digest in source["files"].items():
            self.check_digest(name, digest, pin["files"])

    def check_variant(self, source: Mapping[str, Any]) -> None:
        """Legacy and current code paths are never mixed."""
        for name in source["files"]:
            legacy = "legacy" in name
            current = name.endswith("/medusa_model.py")
            if (legacy and source["variant"] == "current") or (
                current and source["variant"] == "legacy"
            ):
                raise Refused(f"{name} does not belong to the {source['variant']} variant")

    def check_digest(self, name: str, digest: str, pinned: Mapping[str, str]) -> None:
        """A file's hash is the pinned one."""
        if pinned.get(name) != digest:
            raise Refused(f"{name} is not pinned with this hash")

    def prefix_length(self, document: Mapping[str, Any]) -> int:
        """Clause C3."""
        if len(document["prefix"]) != document["prefix_length"]:
            raise Refused("the prefix length is not the number of prefix tokens")
        return len(document["prefix"])

    def check_tree(self, paths: Sequence[Sequence[int]], topk: int, heads: int) -> None:
        """Clauses C4 to C7: the paths grow one trie from its root."""
        trie: dict[int, Any] = {}
        for path in sorted(paths, key=len):
            *above, rank = path
            node = trie
            for step in above:
                node = self.ancestor(node, step)
            self.check_rank(rank, topk)
            self.check_depth(len(path), heads)
            self.check_distinct(node, rank)
            node[rank] = {}

    def ancestor(self, node: dict[int, Any], step: int) -> dict[int, Any]:
        """The child that a path goes through; clause C5."""
        if step not in node:
            raise Refused("a path lacks its ancestor")
        child: dict[int, Any] = node[step]
        return child

    def check_rank(self, rank: int, topk: int) -> None:
        """Clause C6."""
        if rank < 0 or rank >= topk:
            raise Refused(f"rank {rank} is outside [0, {topk})")

    def check_depth(self, depth: int, heads: int) -> None:
        """Clause C7."""
        if depth > heads:
            raise Refused(f"depth {depth} needs more than {heads} heads")

    def check_distinct(self, node: Mapping[int, Any], rank: int) -> None:
        """Clause C4."""
        if rank in node:
            raise Refused("a path occurs twice")

    def check_capacity(self, prefix: int, paths: int, capacity: int) -> None:
        """Clause C8; the root takes a row of its own."""
        if prefix + 1 + paths > capacity:
            raise Refused("the round does not fit the cache")

    def check_tokens(self, document: Mapping[str, Any]) -> None:
        """Clause C11."""
        vocabulary, topk = document["model"]["vocabulary"], document["topk"]
        if topk > vocabulary:
            raise Refused("fewer tokens than ranks")
        ranking = document.get("ranking", {"root": 0, "heads": [range(topk)] * document["heads"]})
        ranks = ranking["heads"]
        if len(ranks) != document["heads"]:
            raise Refused("the ranking has another number of heads")
        for ranked in ranks:
            if len(set(ranked)) != topk or len(ranked) != topk:
                raise Refused("a ranking needs TOPK different tokens")
        earlier = document.get("earlier", {"prefix": []})["prefix"]
        known = range(vocabulary)
        for tokens in (document["prefix"], earlier, [ranking["root"]], *ranks):
            if not all(token in known for token in tokens):
                raise Refused("a token is outside the vocabulary")

    def policy(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Clause C10: the policy to decode under."""
        return dict(document["policy"])

    def rows(self, document: Mapping[str, Any]) -> list[Mapping[str, int | None]]:
        """Clause C9: every packed row in each integer domain (0x01B)."""
        committed, topk = document["prefix_length"], document["topk"]
        table: list[Mapping[str, int | None]] = []
        for row, path in enumerate([[], *sorted(document["paths"], key=lambda p: (len(p), p))]):
            head = len(path) - 1 if path else None
            table.append(
                {
                    "row": row,
                    "rank": path[-1] if path else None,
                    "head": head,
                    "slot": self.slot(row, head, path, topk),
                    "depth": len(path),
                    "position": committed + len(path),
                    "cache_row": committed + row,
                }
            )
        return table

    def slot(self, row: int, head: int | None, path: Sequence[int], topk: int) -> int:
        """Where the row's token stands in the flattened candidates."""
        return 0 if head is None else 1 + head * topk + path[-1]
