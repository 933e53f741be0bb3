"""draftretriever 0.1.1: the tree buffers that a search in a store of trigrams answers with.

The package chooses its tree. So each tree is put in a store of its own, with the slot of a node as
its token, and what the search answers is read as its documentation says: tokens of a depth in order
of first appearance, padded to the widest depth, behind the root.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from medusa_spec.arrays import RankPath
from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import Unsupported

SEARCHES = 20
"""The search is random, and may leave out a part of the tree."""


class Engine:
    """A `Writer` and a `Reader` a tree."""

    name, version = "draftretriever", "0.1.1"
    dialect: Mapping[str, Any] = {
        "policy": {"sentinel": -1},
        "node_order": "own",
        "retrieval": "own",
        "reasons": {"policy": "a constant of the package"},
    }

    def __init__(self, coordinate: Coordinate, capacity: int) -> None:
        self.package = importlib.import_module("draftretriever")

    def compile_tree(self, paths: Any, topk: int, retrieval_order: str, sentinel: int) -> Any:
        """`Reader.search` behind two tokens that nothing else in the store follows."""
        if not paths:
            raise Unsupported("a search that finds nothing answers with no tree")
        behind = 1 + topk * max(map(len, paths))
        prompt = [behind, behind + 1]
        with TemporaryDirectory() as place:
            store = str(Path(place) / "store.idx")
            writer = self.package.Writer(file_path=store)
            for path in paths:
                slots = [1 + depth * topk + rank for depth, rank in enumerate(path)]
                writer.add_entry([*prompt, *slots])
            writer.finalize()
            del writer  # It writes once more when it goes.
            reader = self.package.Reader(index_file_path=store)
        for _ in range(SEARCHES):
            found = tree_of(topk, *reader.search(prompt, choices=len(paths) ** 2))
            if set(found["paths"]) == {(), *paths}:
                return found
        raise Unsupported("the search answers with another tree than is stored")


def tree_of(topk: int, tokens: Any, mask: Any, slots: Any, depths: Any, retrieval: Any) -> Any:
    """The answer of a search as a tree: the path of each row, and its token as its slot."""
    by_depth = zip(*tokens, strict=True)
    columns = [list(dict.fromkeys(t for t in column if t != -2)) for column in by_depth]
    width = max(map(len, columns))
    table = [0, *(t for column in columns for t in (column + [-2] * width)[:width])]
    paths: dict[int, RankPath] = {}
    for rows in retrieval:
        above: RankPath = ()
        for depth, row in enumerate(row for row in rows if row >= 0):
            above = (*above, table[slots[row]] - 1 - (depth - 1) * topk) if depth else ()
            paths[row] = above
    return {
        "paths": [paths[row] for row in sorted(paths)],
        "slots": [table[slot] for slot in slots],
        "mask": mask,
        "depths": depths,
        "retrieval": retrieval,
    }
