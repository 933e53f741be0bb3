"""Decoding round by round: a section of a `line.Line`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from medusa_conformance.crafted import (
    along_paths,
    prescribed_logits,
    ranked_frontier,
)
from medusa_conformance.isolation import Missing
from medusa_conformance.translation import Engine
from medusa_conformance.unlawful import refusal
from medusa_oracles.tree import tree_of
from medusa_spec.arrays import Array
from medusa_spec.coordinate import Acceptance, Coordinate
from medusa_spec.errors import Refused
from medusa_spec.stages import Frontier, TreeBuffers, arrays_of
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line


def decoding(line: Line) -> Iterator[Trace]:
    """Prefill and rounds on one engine, behind an earlier generation where there is one."""
    engine, before = line.engine(), line.coordinate.before
    if before is not None:
        yield from rounds(line, engine, before, 0)
    yield from rounds(line, engine, line.coordinate, 1)


def rounds(line: Line, engine: Engine, coordinate: Coordinate, generation: int) -> Iterator[Trace]:
    """One generation, stage by stage; it ends early where the cache has no room for a tree."""
    if line.dialect.end_of_sequence == "loop":
        coordinate = replace(coordinate, end_of_sequence=None)
    tokens = list(coordinate.prefix)
    tree = line.compile(engine, coordinate)
    begins: Frontier = engine.prefill(tokens)
    yield begun(line, coordinate, generation, begins)
    frontier: Frontier | None = begins
    for number, planned in enumerate(coordinate.rounds):
        if len(tokens) + coordinate.nodes > coordinate.capacity:
            packed = np.zeros(coordinate.nodes, np.int64)
            asked = f"a tree of {coordinate.nodes} rows behind {len(tokens)}, beyond the cache"
            yield refusal(line, engine, asked, partial(engine.verify, tree, packed))
            return
        if coordinate.ranking is not None:
            vocabulary = coordinate.model.vocabulary
            frontier = ranked_frontier(coordinate.ranking, vocabulary, coordinate.topk)
        if frontier is None:
            return
        played = Round(line, engine, coordinate, tree, planned)
        seen = line.trace(
            played.arrays,
            played.documents,
            coordinate=coordinate,
            generation=generation,
            round=number,
        )
        played.documents |= {"round.tokens": tuple(tokens), "round.refused": None}
        try:
            frontier = played.play(frontier, tokens)
        except Refused as refused:
            played.documents["round.refused"] = str(refused)
            return
        finally:
            # However the round ended, what was seen of it is judged.
            yield seen
        if tokens[-1] == coordinate.end_of_sequence:
            return


def begun(line: Line, coordinate: Coordinate, generation: int, frontier: Frontier) -> Trace:
    """A prefill, beside a plain pass over the same tokens."""
    arrays = arrays_of("chain.frontier", frontier)
    plain = line.engine()
    if plain.has("forward"):
        passed = plain.forward(list(coordinate.prefix))
        arrays |= present("chain", plain_logits=passed.logits, plain_heads=passed.head_logits)
    documents: dict[str, Any] = {"generation.prefix": coordinate.prefix}
    return line.trace(arrays, documents, coordinate=coordinate, generation=generation)


class Round:
    """One round; `arrays` and `documents` fill as it goes, so that a broken-off one is judged."""

    def __init__(
        self,
        line: Line,
        engine: Engine,
        coordinate: Coordinate,
        tree: TreeBuffers,
        planned: Acceptance | None,
    ) -> None:
        self.line = line
        self.engine = engine
        self.coordinate = coordinate
        self.tree = tree
        self.planned = planned
        self.arrays: dict[str, Array] = {}
        self.documents: dict[str, Any] = {}

    def play(self, frontier: Frontier, tokens: list[int]) -> Frontier | None:
        """The round's stages in order; `tokens` grow by what it published.

        Gives the next frontier, or `None` where the engine shows none: then no round follows.
        """
        engine, coordinate = self.engine, self.coordinate
        given, proposal = self.line.propose(engine, coordinate, self.tree, frontier)
        self.arrays |= given
        verified = engine.verify(self.tree, proposal.packed)
        self.arrays |= arrays_of("verification", verified)
        # Of an engine that never decoded: one with a past might answer from its session's cache.
        plain = self.line.engine()
        if plain.has("forward"):
            self.arrays |= plain_passes(plain, coordinate, tokens, proposal.packed)
        path_logits = verified.path_logits
        rows = prescribed_logits(coordinate, self.planned, proposal.packed, len(tokens))
        if rows is None and path_logits is None:
            rows = verified.logits
        if rows is not None:
            shown = self.tree.retrieval is not None
            path_logits = along_paths(rows, self.tree if shown else tree_of(coordinate))
        if path_logits is None:
            raise Missing("verify")
        given, selection = self.line.select(engine, coordinate, proposal.candidates, path_logits)
        self.arrays |= given
        self.documents["selection.refused"] = None
        if engine.has("label"):
            self.documents["selection.label"] = engine.label(coordinate.policy)
        if not engine.has("commit"):
            return None
        if engine.has("cache"):
            self.arrays |= present("cache", before=engine.cache().backing)
        plan = engine.commit(selection.path, selection.accepted, coordinate.end_of_sequence)
        self.arrays |= arrays_of("commit", plan)
        if plan.tokens is None:
            return None
        tokens += plan.tokens.tolist()
        self.look(plain, tokens)
        next_frontier: Frontier | None = plan.frontier
        return next_frontier

    def look(self, plain: Engine, tokens: list[int]) -> None:
        """The cache behind a commit, and what a fresh pass over the same tokens holds."""
        if not self.engine.has("cache"):
            return
        after = self.engine.cache()
        self.arrays |= present("cache", after=after.backing, length=after.length)
        if after.backing is None or after.length is None:
            return
        self.arrays["round.visible_kv"] = after.backing[:, :, :, : after.length]
        if plain.has("forward"):
            self.arrays |= present("round", fresh_kv=plain.forward(tokens).kv)


def present(stage: str, **values: Any) -> dict[str, Array]:
    """The values that were observed, under the names of a trace."""
    return {f"{stage}.{name}": np.asarray(v) for name, v in values.items() if v is not None}


def plain_passes(
    engine: Engine, coordinate: Coordinate, tokens: list[int], packed: Array
) -> dict[str, Array]:
    """Logits and K/V of every row from plain causal passes over the prefix and the row's path."""
    tree = tree_of(coordinate)
    rows: dict[int, dict[str, Array]] = {}
    for entries in tree.retrieval:
        path = entries[entries >= 0]
        passed = engine.forward([*tokens, *packed[path].tolist()])
        for place, row in enumerate(path, len(tokens)):
            found: dict[str, Array] = {}
            if passed.logits is not None:
                found["logits"] = passed.logits[place]
            if passed.head_logits is not None:
                found["head_logits"] = passed.head_logits[:, place]
            if passed.kv is not None:
                found["kv"] = passed.kv[:, :, :, place]
            rows.setdefault(int(row), found)
    axes = {"logits": 0, "head_logits": 1, "kv": 3}
    in_order = [rows[row] for row in range(len(tree.paths))]
    return {
        f"plain.{name}": np.stack([row[name] for row in in_order], axis=axes[name])
        for name in in_order[0]
    }
