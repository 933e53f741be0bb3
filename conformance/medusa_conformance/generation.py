"""Whole generations: on a used engine, on one path alone, on a fresh engine, and stage by stage.

A section of a `line.Line`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from medusa_conformance.crafted import greedy, kindred, shifted, unsorted
from medusa_conformance.incident import Incident
from medusa_conformance.plain_engine import PlainEngine
from medusa_conformance.refusal import answered
from medusa_conformance.rounds import present
from medusa_conformance.translation import Engine
from medusa_spec.arrays import Array, RankPath
from medusa_spec.coordinate import Coordinate, Policy
from medusa_spec.stages import Decoded, TreeBuffers, arrays_of
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line


STEPS = ("prefill", "propose", "verify", "select", "commit")
"""The stages by which a generation can be driven round by round."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What every generation of a coordinate is asked for: as many tokens as its cache can take."""

    coordinate: Coordinate
    tokens: int

    def generate(self, engine: Any, paths: Sequence[RankPath], policy: Policy) -> Any:
        """The engine's own loop."""
        planned = self.coordinate
        tree, end = unsorted(tuple(paths)), planned.end_of_sequence
        return engine.generate(planned.prefix, self.tokens, tree, planned.topk, policy, end)

    def shown(self, decoded: Decoded, plain: PlainEngine) -> dict[str, Array]:
        """What a generation answered, beside a plain pass over the prefix and its tokens."""
        arrays = generated("generation", decoded)
        arrays["generation.asked"] = np.asarray(self.tokens)
        if plain.has():
            passed = plain.forward([*self.coordinate.prefix, *decoded.tokens])
            arrays |= present("generation", plain_logits=passed.logits)
        return arrays

    def drive(self, engine: Engine, tree: TreeBuffers, policy: Policy) -> dict[str, Array]:
        """The same, round by round through the engine's stages, on its buffers.

        Nothing where the engine shows too little of a round to go on with.
        """
        planned, end = self.coordinate, self.coordinate.end_of_sequence
        frontier = engine.prefill(planned.prefix)
        output: list[int] = []
        published: list[int] = []
        # A lawful round publishes at least one token, so no more rounds than tokens are needed.
        for _ in range(self.tokens):
            proposal = engine.propose(tree, frontier, planned.topk, policy.sentinel)
            if proposal.packed is None:
                return {}
            verified = engine.verify(tree, proposal.packed)
            if any(part is None for part in (proposal.candidates, verified.path_logits)):
                return {}
            selection = engine.select(proposal.candidates, verified.path_logits, policy)
            if any(part is None for part in (selection.path, selection.accepted)):
                return {}
            plan = engine.commit(selection.path, selection.accepted, end)
            frontier = plan.frontier
            if any(part is None for part in (plan.tokens, frontier)):
                return {}
            published.append(len(plan.tokens))
            output += [int(token) for token in plan.tokens]
            if len(output) >= self.tokens or output[-1:] == [end]:
                break
        return {
            "rounds.tokens": np.array(output[: self.tokens], np.int64),
            "rounds.published": np.array(published, np.int64),
        }


def generation(line: Line) -> Iterator[Trace]:
    """Greedy generations, and one under the coordinate's own policy where that is another."""
    own = line.coordinate.policy
    coordinate = replace(line.coordinate, policy=greedy(own))
    prefix = coordinate.prefix
    depth = max(map(len, coordinate.paths), default=0)
    room = coordinate.capacity - len(prefix) - coordinate.nodes + 1
    asked = Asked(coordinate, min(room, 2 * depth + 3))
    chain = deepest_chain(coordinate)

    engine, plain = line.engine(), line.plain
    steps = engine.has(*STEPS) and driven(line)
    if engine.has(*STEPS):
        line.compile(engine, coordinate)
    # Another prompt of the same length first: whatever survives of it must not be read again.
    other = shifted(prefix, coordinate.model.vocabulary)
    if engine.has("prefill"):
        engine.prefill(other)
    else:
        before = Asked(replace(coordinate, prefix=other), asked.tokens)
        before.generate(engine, coordinate.paths, coordinate.policy)
    whole = asked.generate(engine, coordinate.paths, coordinate.policy)
    alone = asked.generate(engine, chain, coordinate.policy)
    fresh = asked.generate(line.engine(), coordinate.paths, coordinate.policy)
    arrays = {
        **asked.shown(whole, plain),
        **generated("chain", alone),
        **generated("fresh", fresh),
    }
    if plain.has():
        passed = plain.forward([*prefix, *alone.tokens])
        arrays |= present("chain", plain_logits=passed.logits, plain_heads=passed.head_logits)
    if steps:
        arrays |= asked.drive(engine, line.compile(engine, coordinate), coordinate.policy)
    if engine.has("prefill"):
        arrays |= arrays_of("chain.frontier", engine.prefill(prefix))
    documents = {"generation.prefix": prefix, "chain.path": chain[-1] if chain else ()}
    yield line.trace(arrays, documents, coordinate=coordinate)
    if coordinate.end_of_sequence is None and len(whole.tokens) > 1:
        yield ended(asked, whole, line, engine)
    if asked.tokens == room:
        yield from unroomed(line, engine, Asked(coordinate, room + 1))
    published = (*prefix, *whole.tokens)
    narrow = coordinate.with_tree(chain)
    for prompt in kindred(published, coordinate.model.vocabulary, narrow.capacity - narrow.nodes):
        given = replace(narrow, prefix=prompt, prefix_length=len(prompt))
        yield first_round(line, engine, given)
    if own != coordinate.policy:
        whole, unused = asked.generate(engine, coordinate.paths, own), line.engine()
        arrays = asked.shown(whole, plain)
        # Either way beside an engine that never heard of another policy.
        if steps:
            arrays |= asked.drive(unused, line.compile(unused, coordinate), own)
        else:
            arrays |= generated("fresh", asked.generate(unused, coordinate.paths, own))
        yield line.trace(arrays, {"generation.prefix": prefix})


def first_round(line: Line, engine: Engine, planned: Coordinate) -> Trace:
    """A generation of one token: its round begins with the frontier of the prompt."""
    asked = Asked(planned, 1)
    arrays = asked.shown(asked.generate(engine, planned.paths, planned.policy), line.plain)
    return line.trace(arrays, {"generation.prefix": planned.prefix}, coordinate=planned)


def unroomed(line: Line, engine: Engine, asked: Asked) -> Iterator[Trace]:
    """A generation for which there may be no room.

    It may be refused, or end early, or go on for as long as its tokens fit: but nothing of the
    prompt may go to make room.
    """
    planned = asked.coordinate
    decoded, _ = answered(line, partial(asked.generate, engine, planned.paths, planned.policy))
    if decoded is not None:
        arrays = asked.shown(decoded, line.plain)
        del arrays["generation.asked"]
        yield line.trace(arrays, {"generation.prefix": planned.prefix}, coordinate=planned)


def ended(asked: Asked, whole: Decoded, line: Line, engine: Engine) -> Trace:
    """The same generation once more, with a token for the end that a round published inside.

    Few coordinates end there by themselves, and a loop that looks behind each round runs past it.
    """
    place, behind = 1, 0
    for published in whole.published or ():
        if published > 1:
            place = behind
            break
        behind += published
    end = whole.tokens[min(place, len(whole.tokens) - 1)]
    planned = replace(asked.coordinate, end_of_sequence=end)
    again = Asked(planned, asked.tokens)
    found = again.generate(engine, planned.paths, planned.policy)
    arrays = again.shown(found, line.plain)
    return line.trace(arrays, {"generation.prefix": planned.prefix}, coordinate=planned)


def driven(line: Line) -> bool:
    """Whether rounds publish what a generation does: none end where only the loop looks for it."""
    ends = line.dialect.end_of_sequence == "commit"
    return ends or line.coordinate.end_of_sequence is None


def generated(name: str, decoded: Decoded) -> dict[str, Array]:
    """A generation's arrays under one name."""
    if decoded.tokens is None:
        raise Incident("rubbish", "generate", "no tokens were answered")
    tokens = np.array(decoded.tokens, np.int64)
    published = None if decoded.published is None else np.array(decoded.published, np.int64)
    return present(name, tokens=tokens, published=published, frontiers=decoded.frontiers)


def deepest_chain(coordinate: Coordinate) -> tuple[RankPath, ...]:
    """The first of the deepest paths with its ancestors: a tree of one path."""
    deepest = max(coordinate.paths, key=len, default=())
    return tuple(deepest[:depth] for depth in range(1, len(deepest) + 1))
