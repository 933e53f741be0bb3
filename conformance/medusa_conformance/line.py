"""The straight line of one coordinate: what is asked of an engine, and the traces that it leaves.

Every section asks for some stages and yields the traces of what they answered. A `Refused` where
nothing unlawful was asked is an observation; any other exception is the engine's crash, and the
line goes on with the next section.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from medusa_conformance.crafted import (
    along_paths,
    alter_head,
    posterior_logits,
    random_heads,
    ranked_frontier,
    steered_logits,
)
from medusa_conformance.probes import unlawful_documents
from medusa_oracles.tree import derive_tree
from medusa_spec.arrays import Array
from medusa_spec.coordinate import Acceptance, Coordinate
from medusa_spec.errors import Refused
from medusa_spec.stages import Frontier, Selection, TreeBuffers, arrays_of
from medusa_spec.trace import Tolerance, Trace

Factory: TypeAlias = Callable[[Coordinate, int], Any]
"""Makes a fresh engine for a coordinate's model, with a cache of so many rows."""


@dataclass(frozen=True, slots=True)
class Crash:
    """An exception of the engine that is not a refusal."""

    section: str
    error: str


@dataclass(frozen=True, slots=True)
class Line:
    """One coordinate, an engine factory, and the tolerances to judge by."""

    coordinate: Coordinate
    factory: Factory
    tolerance: Tolerance
    policy_tolerance: Tolerance

    def run(self) -> Iterator[Trace | Crash]:
        """Every section in the order of the contracts."""
        for section in (
            self.admission,
            self.heads,
            self.tree,
            self.decoding,
            self.unlawful_logits,
            self.unlawful_commit,
            self.unlawful_staging,
            self.generation,
        ):
            try:
                yield from section()
            except Refused as refusal:
                # Nothing unlawful was asked; the sections that do ask for it catch the answer.
                yield self.trace({}, {"round.refused": str(refusal)})
            except Exception as error:
                yield Crash(section.__name__, f"{type(error).__name__}: {error}")

    def trace(self, arrays: dict[str, Array], documents: dict[str, Any], **more: Any) -> Trace:
        """A trace of this line's coordinate, or of the one in `more`."""
        coordinate = more.pop("coordinate", self.coordinate)
        return Trace(coordinate, self.tolerance, self.policy_tolerance, arrays, documents, **more)

    def engine(self, capacity: int | None = None) -> Any:
        """A fresh engine; the coordinate's own capacity unless told otherwise."""
        rows = self.coordinate.capacity if capacity is None else capacity
        return self.factory(self.coordinate, rows)

    def compile(self, engine: Any, coordinate: Coordinate) -> TreeBuffers:
        """The engine's buffers for a coordinate's tree."""
        policy = coordinate.policy
        buffers: TreeBuffers = engine.compile_tree(
            coordinate.paths, coordinate.topk, policy.retrieval_order, policy.sentinel
        )
        return buffers

    def admission(self) -> Iterator[Trace]:
        """The lawful document, and one broken document for each rule that it can break."""
        # What is expected of a round is the judge's, and no part of what an engine is given.
        engine, document = self.engine(), replace(self.coordinate, expected={}).document()
        for given in (document, *unlawful_documents(document)):
            seen: dict[str, Any] = {"coordinate.given": given, "coordinate.refused": None}
            try:
                admitted = engine.admit(given)
            except Refused as refusal:
                seen["coordinate.refused"] = str(refusal)
            else:
                seen["coordinate.admitted"] = admitted.document
                seen["coordinate.rows"] = admitted.rows
            yield self.trace({}, seen)

    def heads(self) -> Iterator[Trace]:
        """Random heads on random hidden states; as many sequences as heads, so that axes alias."""
        shape, heads = self.coordinate.model, self.coordinate.heads
        if heads == 0:
            return
        engine = self.engine()
        generator = np.random.default_rng([self.coordinate.policy.seed, heads])
        given = random_heads(generator, self.coordinate)
        hidden = generator.normal(size=(heads, 2, shape.hidden))
        length = int(generator.integers(1, heads + 4))
        tokens = generator.integers(0, shape.vocabulary, (2, length))
        owned = generator.random((2, length)) < 0.5
        arrays = {
            **arrays_of("heads.given", given),
            **arrays_of("heads", engine.apply_heads(given, hidden)),
            **arrays_of("heads", engine.align_heads(tokens, owned, heads)),
            "heads.hidden": hidden,
            "heads.tokens": tokens,
            "heads.owned_tokens": owned,
        }
        altered = int(generator.integers(heads))
        other = alter_head(given, altered)
        if other is not None:
            arrays["heads.altered_logits"] = engine.apply_heads(other, hidden).logits
            arrays["heads.altered_head"] = np.asarray(altered)
        yield self.trace(arrays, {})

    def tree(self) -> Iterator[Trace]:
        """Tree compilation, and the node count of a regular tree."""
        engine, branching = self.engine(), self.coordinate.branching
        tree = self.compile(engine, self.coordinate)
        arrays = arrays_of("tree", tree)
        if branching is not None:
            arrays["tree.node_count"] = np.asarray(engine.node_count(branching))
        yield self.trace(arrays, {"tree.paths": tree.paths})

    def decoding(self) -> Iterator[Trace]:
        """Prefill and rounds on one engine, behind an earlier generation where there is one."""
        engine, earlier = self.engine(), self.coordinate.earlier
        if earlier is not None:
            before = self.coordinate.with_tree(earlier.paths)
            before = replace(
                before,
                prefix=earlier.prefix,
                prefix_length=len(earlier.prefix),
                ranking=None,
                posterior=(),
            )
            yield from self.rounds(engine, before, 0)
        yield from self.rounds(engine, self.coordinate, 1)

    def rounds(self, engine: Any, coordinate: Coordinate, generation: int) -> Iterator[Trace]:
        """One generation, stage by stage; it ends early where the cache has no room for a tree."""
        tokens = list(coordinate.prefix)
        tree = self.compile(engine, coordinate)
        frontier = engine.prefill(tokens)
        for number, planned in enumerate(coordinate.rounds):
            if len(tokens) + coordinate.nodes > coordinate.capacity:
                return
            if coordinate.ranking is not None:
                vocabulary = coordinate.model.vocabulary
                frontier = ranked_frontier(coordinate.ranking, vocabulary, coordinate.topk)
            arrays: dict[str, Array] = {}
            documents: dict[str, Any] = {"round.tokens": tuple(tokens), "round.refused": None}
            seen = self.trace(
                arrays, documents, coordinate=coordinate, generation=generation, round=number
            )
            try:
                frontier = self.round(
                    engine, coordinate, tree, frontier, tokens, planned, arrays, documents
                )
            except Refused as refusal:
                documents["round.refused"] = str(refusal)
                return
            finally:
                # However the round ended, what was seen of it is judged.
                yield seen
            if tokens[-1] == coordinate.end_of_sequence:
                return

    def round(
        self,
        engine: Any,
        coordinate: Coordinate,
        tree: TreeBuffers,
        frontier: Frontier,
        tokens: list[int],
        planned: Acceptance | None,
        arrays: dict[str, Array],
        documents: dict[str, Any],
    ) -> Frontier:
        """One round into `arrays` and `documents`; `tokens` grow by what it published."""
        policy = coordinate.policy
        proposal = engine.propose(tree, frontier, coordinate.topk, policy.sentinel)
        arrays |= arrays_of("frontier", frontier) | arrays_of("proposal", proposal)
        verified = engine.verify(tree, proposal.packed)
        arrays |= arrays_of("verification", verified)
        arrays |= plain_passes(engine, coordinate, tokens, proposal.packed)
        path_logits = verified.path_logits
        if coordinate.posterior or planned is not None:
            # The judge's own tree: a steered row must be the row that the path names.
            truth = own_tree(coordinate)
            if coordinate.posterior:
                rows = posterior_logits(coordinate.posterior, truth, coordinate.model.vocabulary)
            else:
                assert planned is not None
                seed = policy.seed + len(tokens)
                rows = steered_logits(planned, truth, proposal.packed, coordinate, seed)
            path_logits = along_paths(rows, tree)
        selection = self.select(engine, coordinate, proposal.candidates, path_logits, arrays)
        documents["selection.refused"] = None
        documents["selection.label"] = engine.label(policy)
        arrays["cache.before"] = engine.cache().backing
        plan = engine.commit(selection.path, selection.accepted, coordinate.end_of_sequence)
        arrays |= arrays_of("commit", plan)
        tokens += plan.tokens.tolist()
        after = engine.cache()
        arrays["cache.after"], arrays["cache.length"] = after.backing, np.asarray(after.length)
        arrays["round.visible_kv"] = after.backing[:, :, :, : after.length]
        arrays["round.fresh_kv"] = engine.forward(tokens).kv
        next_frontier: Frontier = plan.frontier
        return next_frontier

    def select(
        self,
        engine: Any,
        coordinate: Coordinate,
        candidates: Array,
        path_logits: Array,
        arrays: dict[str, Array],
    ) -> Selection:
        """The selection, written into `arrays` with what it was given."""
        selection: Selection = engine.select(candidates, path_logits, coordinate.policy)
        arrays |= arrays_of("selection", selection)
        arrays["selection.candidates"], arrays["selection.path_logits"] = candidates, path_logits
        return selection

    def staged(self, engine: Any) -> tuple[TreeBuffers, Any]:
        """A prefilled engine with one tree verified: the tree and its proposal."""
        coordinate = self.coordinate
        tree = self.compile(engine, coordinate)
        frontier = engine.prefill(coordinate.prefix)
        proposal = engine.propose(tree, frontier, coordinate.topk, coordinate.policy.sentinel)
        return tree, proposal

    def unlawful_logits(self) -> Iterator[Trace]:
        """A selection over logits one of which is no number: the whole root row, or one entry."""
        engine = self.engine()
        tree, proposal = self.staged(engine)
        candidates, vocabulary = proposal.candidates, self.coordinate.model.vocabulary
        for spoiled, value in ((slice(None), np.nan), (slice(-1, None), np.inf)):
            logits = np.zeros((*tree.retrieval.shape, vocabulary))
            logits[:, 0, spoiled] = value
            arrays = {"selection.candidates": candidates, "selection.path_logits": logits}
            documents: dict[str, Any] = {"selection.refused": None}
            try:
                engine.select(candidates, logits, self.coordinate.policy)
            except Refused as refusal:
                documents["selection.refused"] = str(refusal)
            yield self.trace(arrays, documents)

    def unlawful_commit(self) -> Iterator[Trace]:
        """Commits that name no path, or more edges than their path has."""
        own = own_tree(self.coordinate)
        paths, longest = own.retrieval.shape
        edges = int((own.retrieval[0] >= 0).sum()) - 1
        for path, accepted in ((paths, 0), (-1, 0), (0, edges + 1), (0, longest)):
            engine = self.engine()
            tree, proposal = self.staged(engine)
            engine.verify(tree, proposal.packed)
            asked = f"a commit of path {path} with {accepted} accepted edges"
            ask = partial(engine.commit, path, accepted, None)
            yield self.refusal(engine, asked, ask)

    def unlawful_staging(self) -> Iterator[Trace]:
        """A tree, and a prefix, that are one row too large for the cache."""
        coordinate = self.coordinate
        engine = self.engine(len(coordinate.prefix) + coordinate.nodes - 1)
        tree, proposal = self.staged(engine)
        asked = f"a tree of {coordinate.nodes} rows with room for one less"
        yield self.refusal(engine, asked, partial(engine.verify, tree, proposal.packed))
        capacity = engine.cache().backing.shape[3]
        asked = f"a prefix of {capacity + 1} tokens in a cache of {capacity}"
        yield self.refusal(engine, asked, partial(engine.prefill, [0] * (capacity + 1)))

    def refusal(self, engine: Any, asked: str, ask: Callable[[], Any]) -> Trace:
        """Ask for what must be refused, and compare the cache before and after."""
        before = engine.cache()
        documents: dict[str, Any] = {"refusal.asked": asked, "refusal.refused": None}
        try:
            ask()
        except Refused as refusal:
            documents["refusal.refused"] = str(refusal)
        after = engine.cache()
        arrays = {
            "refusal.before": before.backing,
            "refusal.after": after.backing,
            "refusal.length_before": np.asarray(before.length),
            "refusal.length_after": np.asarray(after.length),
        }
        return self.trace(arrays, documents)

    def generation(self) -> Iterator[Trace]:
        """Whole greedy generations: a used engine, one of its paths alone, and a fresh engine."""
        coordinate = replace(self.coordinate, policy=greedy(self.coordinate))
        prefix, policy = coordinate.prefix, coordinate.policy
        depth = max(map(len, coordinate.paths), default=0)
        room = coordinate.capacity - len(prefix) - coordinate.nodes + 1
        asked = min(room, 2 * depth + 3)
        chain = deepest_chain(coordinate)

        def generate(engine: Any, paths: Any) -> Any:
            end = coordinate.end_of_sequence
            return engine.generate(prefix, asked, paths, coordinate.topk, policy, end)

        engine = self.engine()
        # Another prompt of the same length: whatever survives of it must not be read again.
        engine.prefill([(token + 1) % coordinate.model.vocabulary for token in prefix])
        whole = generate(engine, coordinate.paths)
        alone = generate(engine, chain)
        fresh = generate(self.engine(), coordinate.paths)
        passed = engine.forward([*prefix, *alone.tokens])
        arrays = {
            **generated("generation", whole),
            **generated("chain", alone),
            **generated("fresh", fresh),
            "generation.asked": np.asarray(asked),
            "generation.plain_logits": engine.forward([*prefix, *whole.tokens]).logits,
            "chain.plain_logits": passed.logits,
            "chain.plain_heads": passed.head_logits[:, len(prefix) - 1],
            **arrays_of("chain.frontier", engine.prefill(prefix)),
        }
        documents = {"generation.prefix": prefix, "chain.path": chain[-1] if chain else ()}
        yield self.trace(arrays, documents, coordinate=coordinate)


def own_tree(coordinate: Coordinate) -> TreeBuffers:
    """The tree as the oracles have it, to know which row a path is."""
    policy = coordinate.policy
    return derive_tree(coordinate.paths, coordinate.topk, policy.retrieval_order, policy.sentinel)


def plain_passes(
    engine: Any, coordinate: Coordinate, tokens: list[int], packed: Array
) -> dict[str, Array]:
    """Logits and K/V of every row from plain causal passes over the prefix and the row's path."""
    tree = own_tree(coordinate)
    rows: dict[int, tuple[Array, Array, Array]] = {}
    for entries in tree.retrieval:
        path = entries[entries >= 0]
        passed = engine.forward([*tokens, *packed[path].tolist()])
        for place, row in enumerate(path, len(tokens)):
            found = passed.logits[place], passed.head_logits[:, place], passed.kv[:, :, :, place]
            rows.setdefault(int(row), found)
    logits, heads, kv = zip(*(rows[row] for row in range(len(tree.paths))), strict=True)
    return {
        "plain.logits": np.stack(logits),
        "plain.head_logits": np.stack(heads, axis=1),
        "plain.kv": np.stack(kv, axis=3),
    }


def generated(name: str, decoded: Any) -> dict[str, Array]:
    """A generation's arrays under one name."""
    return {
        f"{name}.tokens": np.array(decoded.tokens, np.int64),
        f"{name}.published": np.array(decoded.published, np.int64),
        f"{name}.frontiers": decoded.frontiers,
    }


def greedy(coordinate: Coordinate) -> Any:
    """The coordinate's policy, greedy."""
    return replace(coordinate.policy, mode="greedy", temperature=0.0, tie_rule="first-maximal-path")


def deepest_chain(coordinate: Coordinate) -> tuple[tuple[int, ...], ...]:
    """The first of the deepest paths with its ancestors: a tree of one path."""
    deepest = max(coordinate.paths, key=len, default=())
    return tuple(deepest[:depth] for depth in range(1, len(deepest) + 1))
