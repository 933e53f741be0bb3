"""Decoding round by round: a section of a `line.Line`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from medusa_conformance.crafted import (
    along_paths,
    kindred,
    other_mode,
    prescribed_logits,
    ranked_frontier,
    shifted,
)
from medusa_conformance.isolation import Missing
from medusa_conformance.plain_engine import PlainEngine
from medusa_conformance.refusal import refusal
from medusa_conformance.translation import Engine
from medusa_oracles.tree import tree_of
from medusa_spec.arrays import Array
from medusa_spec.coordinate import Acceptance, Coordinate
from medusa_spec.errors import Refused, Unsupported
from medusa_spec.stages import Frontier, Proposal, TreeBuffers, Verification, arrays_of
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line


BESIDE = ("plain.logits", "plain.head_logits", "plain.kv")
"""What a plain pass shows beside the verification of a round."""


def decoding(line: Line) -> Iterator[Trace]:
    """Prefill and rounds on one engine, behind an earlier generation where there is one.

    The earlier one is of the other mode, as far as the engine was made for it: a policy is its
    generation's. Behind both, where there is no loop to do it (see `generation`), prompts that
    share a part of what was published are read.
    """
    coordinate = line.coordinate
    engine, before = line.engine(), coordinate.before
    if before is not None:
        try:
            yield from rounds(line, engine, replace(before, policy=other_mode(before.policy)), 0)
        except Unsupported:
            yield from rounds(line, engine, before, 0)
    tokens = yield from rounds(line, engine, coordinate, 1)
    if engine.has("generate"):
        return
    room = coordinate.capacity - coordinate.nodes
    for prompt in kindred(tokens, coordinate.model.vocabulary, room):
        given = replace(coordinate, prefix=prompt, prefix_length=len(prompt))
        yield begun(line, given, 1, engine.prefill(prompt))


def rounds(
    line: Line, engine: Engine, coordinate: Coordinate, generation: int
) -> Generator[Trace, None, list[int]]:
    """One generation, stage by stage; it ends early where the cache has no room for a tree.

    Gives the tokens that it ended with, those of the prefix among them.
    """
    if line.dialect.end_of_sequence == "loop":
        coordinate = replace(coordinate, end_of_sequence=None)
    tokens = list(coordinate.prefix)
    tree = line.compile(engine, coordinate)
    begins: Frontier = engine.prefill(tokens)
    yield begun(line, coordinate, generation, begins)
    # Another session beside this one: they share weights, and no row.
    beside = line.engine()
    line.compile(beside, coordinate)
    beside.prefill(shifted(tokens, coordinate.model.vocabulary))
    frontier: Frontier | None = begins
    for number, planned in enumerate(coordinate.rounds):
        if len(tokens) + coordinate.nodes > coordinate.capacity:
            packed = np.zeros(coordinate.nodes, np.int64)
            asked = f"a tree of {coordinate.nodes} rows behind {len(tokens)}, beyond the cache"
            yield refusal(line, engine, asked, partial(engine.verify, tree, packed))
            break
        if coordinate.ranking is not None:
            vocabulary = coordinate.model.vocabulary
            frontier = ranked_frontier(coordinate.ranking, vocabulary, coordinate.topk)
        if frontier is None:
            break
        played = Round(line, engine, coordinate, tree, planned)
        play = partial(played.play, frontier, tokens)
        frontier = yield from played.seen(play, tokens, generation, number)
        refused = played.documents["round.refused"] is not None
        if refused or tokens[-1] == coordinate.end_of_sequence:
            break
    return tokens


def plain(line: Line) -> Iterator[Trace]:
    """Plain passes over the tree that a right engine would propose, of an engine without a past."""
    coordinate, packed = line.coordinate, line.lawful_proposal().packed
    yield line.trace(plain_passes(line.plain, coordinate, list(coordinate.prefix), packed), {})


def begun(line: Line, coordinate: Coordinate, generation: int, frontier: Frontier) -> Trace:
    """A prefill, beside a plain pass over the same tokens."""
    arrays = arrays_of("chain.frontier", frontier)
    if line.plain.has():
        passed = line.plain.forward(coordinate.prefix)
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

    def seen(
        self,
        play: Callable[[], Frontier | None],
        tokens: list[int],
        generation: int,
        number: int,
    ) -> Generator[Trace, None, Frontier | None]:
        """The trace of what `play` does in this round, and what it gives; `None` if refused."""
        trace = self.line.trace(
            self.arrays,
            self.documents,
            coordinate=self.coordinate,
            generation=generation,
            round=number,
        )
        self.documents |= {"round.tokens": tuple(tokens), "round.refused": None}
        frontier: Frontier | None = None
        try:
            frontier = play()
        except Refused as refused:
            self.documents["round.refused"] = str(refused)
        finally:
            # However the round ended, what was seen of it is judged.
            yield trace
        return frontier

    def play(self, frontier: Frontier, tokens: list[int]) -> Frontier | None:
        """The round's stages in order; `tokens` grow by what it published.

        Gives the next frontier, or `None` where the engine shows none: then no round follows.
        """
        return self.finish(*self.stage(frontier), tokens)

    def stage(self, frontier: Frontier) -> tuple[Proposal, Verification]:
        """A proposal, verified."""
        given, proposal = self.line.propose(self.engine, self.coordinate, self.tree, frontier)
        self.arrays |= given
        verified = self.engine.verify(self.tree, proposal.packed)
        self.arrays |= arrays_of("verification", verified)
        return proposal, verified

    def finish(
        self, proposal: Proposal, verified: Verification, tokens: list[int]
    ) -> Frontier | None:
        """The round from a staged tree on, beside plain passes over its rows."""
        if self.line.plain.has():
            passes = plain_passes(self.line.plain, self.coordinate, tokens, proposal.packed)
            # Hidden states and heads are judged by themselves, in `plain`.
            self.arrays |= {name: passes[name] for name in BESIDE if name in passes}
        return self.conclude(proposal, verified, tokens)

    def conclude(
        self, proposal: Proposal, verified: Verification, tokens: list[int]
    ) -> Frontier | None:
        """A selection, and its commit."""
        engine, coordinate = self.engine, self.coordinate
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
        self.look(tokens)
        next_frontier: Frontier | None = plan.frontier
        return next_frontier

    def look(self, tokens: list[int]) -> None:
        """The cache behind a commit, and what a fresh pass over the same tokens holds."""
        if not self.engine.has("cache"):
            return
        after = self.engine.cache()
        self.arrays |= present("cache", after=after.backing, length=after.length)
        if after.backing is None or after.length is None:
            return
        self.arrays["round.visible_kv"] = after.backing[:, :, :, : after.length]
        if self.line.plain.has():
            self.arrays |= present("round", fresh_kv=self.line.plain.forward(tokens).kv)


def present(stage: str, **values: Any) -> dict[str, Array]:
    """The values that were observed, under the names of a trace."""
    return {f"{stage}.{name}": np.asarray(v) for name, v in values.items() if v is not None}


def plain_passes(
    engine: PlainEngine, coordinate: Coordinate, tokens: list[int], packed: Array
) -> dict[str, Array]:
    """What plain causal passes over the prefix and a row's path end with, and their parameters."""
    tree = tree_of(coordinate)
    rows: dict[int, dict[str, Array]] = {}
    arrays: dict[str, Array] = {}
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
            if passed.hidden is not None:
                found["hidden"] = passed.hidden[place]
            rows.setdefault(int(row), found)
        if passed.state is not None:
            arrays = arrays_of("plain.state", passed.state)
    axes = {"logits": 0, "head_logits": 1, "kv": 3, "hidden": 0}
    in_order = [rows[row] for row in range(len(tree.paths))]
    return arrays | {
        f"plain.{name}": np.stack([row[name] for row in in_order], axis=axes[name])
        for name in in_order[0]
    }
