"""What a tree must compile to, as a plain document; no engine has a part in it, and no torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from medusa_oracles.tree import derive_parents, derive_tree
from medusa_oracles.verification import derive_positions, derive_staged_rows
from medusa_spec.arrays import RankPath
from medusa_spec.coordinate import Coordinate


def derivation_of(coordinate: Coordinate) -> dict[str, Any]:
    """The derivation of a coordinate's tree behind its prefix."""
    policy = coordinate.policy
    return derivation_document(
        coordinate.name,
        coordinate.paths,
        coordinate.topk,
        coordinate.heads,
        policy.retrieval_order,
        policy.sentinel,
        coordinate.prefix_length,
    )


def derivation_document(
    name: str,
    paths: tuple[RankPath, ...],
    topk: int,
    heads: int,
    retrieval_order: str,
    sentinel: int,
    prefix_length: int | None = None,
) -> dict[str, Any]:
    """What `derive --json` prints: `paths` without the root, every other buffer with it."""
    tree = derive_tree(paths, topk, retrieval_order, sentinel)
    document = {
        "name": name,
        "topk": topk,
        "heads": heads,
        "nodes": len(tree.paths),
        "sentinel": sentinel,
        "retrieval_order": retrieval_order,
        "paths": [list(path) for path in tree.paths[1:]],
        "parents": derive_parents(tree.paths).tolist(),
        "tree_indices": tree.slots.tolist(),
        "attention_mask": tree.mask.astype(np.uint8).tolist(),
        "position_ids": tree.depths.tolist(),
        "retrieve_indices": tree.retrieval.tolist(),
    }
    if prefix_length is not None:
        document["prefix_length"] = prefix_length
        document["positions"] = derive_positions(tree.depths, prefix_length).tolist()
        document["staged_rows"] = derive_staged_rows(len(tree.paths), prefix_length).tolist()
    return document
