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
    GREAT,
    along_paths,
    alter_head,
    coarse_frontier,
    great_logits,
    posterior_logits,
    random_heads,
    ranked_frontier,
    steered_logits,
    unsorted,
)
from medusa_conformance.generation import generation
from medusa_conformance.isolation import Isolated
from medusa_conformance.probes import unlawful_documents
from medusa_conformance.unlawful import (
    refusal,
    unlawful_commit,
    unlawful_logits,
    unlawful_staging,
)
from medusa_oracles.tree import tree_of
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
            Line.admission,
            Line.heads,
            Line.tree,
            Line.proposals,
            Line.decoding,
            Line.selections,
            unlawful_logits,
            unlawful_commit,
            unlawful_staging,
            generation,
        ):
            try:
                yield from section(self)
            except Refused as refused:
                # Nothing unlawful was asked; the sections that do ask for it catch the answer.
                yield self.trace({}, {"round.refused": str(refused)})
            except (Exception, SystemExit) as error:
                yield Crash(section.__name__, f"{type(error).__name__}: {error}")

    def trace(self, arrays: dict[str, Array], documents: dict[str, Any], **more: Any) -> Trace:
        """A trace of this line's coordinate, or of the one in `more`."""
        coordinate = more.pop("coordinate", self.coordinate)
        return Trace(coordinate, self.tolerance, self.policy_tolerance, arrays, documents, **more)

    def engine(self, capacity: int | None = None) -> Any:
        """A fresh engine; the coordinate's own capacity unless told otherwise."""
        rows = self.coordinate.capacity if capacity is None else capacity
        return Isolated(self.factory(self.coordinate, rows))

    def compile(self, engine: Any, coordinate: Coordinate) -> TreeBuffers:
        """The engine's buffers for a coordinate's tree."""
        policy = coordinate.policy
        buffers: TreeBuffers = engine.compile_tree(
            unsorted(coordinate.paths), coordinate.topk, policy.retrieval_order, policy.sentinel
        )
        return buffers

    def admission(self) -> Iterator[Trace]:
        """The lawful document, and one broken document for each rule that it can break."""
        # What is expected of a round is the judge's, and no part of what an engine is given.
        engine, document = self.engine(), replace(self.coordinate, expected={}).document()
        other_order = document | {"paths": document["paths"][::-1]}
        for given in (document, other_order, *unlawful_documents(document)):
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
        # The same paths under another policy first: buffers are theirs and the policy's.
        paths, topk, policy = self.coordinate.paths, self.coordinate.topk, self.coordinate.policy
        order = "canonical" if policy.retrieval_order == "pinned" else "pinned"
        engine.compile_tree(paths, topk, order, policy.sentinel - 1)
        tree = self.compile(engine, self.coordinate)
        arrays = arrays_of("tree", tree)
        if branching is not None:
            arrays["tree.node_count"] = np.asarray(engine.node_count(branching))
        yield self.trace(arrays, {"tree.paths": tree.paths})

    def proposals(self) -> Iterator[Trace]:
        """A proposal from a frontier in which many logits are equal."""
        engine, coordinate = self.engine(), self.coordinate
        frontier = coarse_frontier(coordinate)
        tree, sentinel = self.compile(engine, coordinate), coordinate.policy.sentinel
        proposal = engine.propose(tree, frontier, coordinate.topk, sentinel)
        yield self.trace(arrays_of("frontier", frontier) | arrays_of("proposal", proposal), {})

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
        plain = self.engine().forward(tokens)
        begun = {
            **arrays_of("chain.frontier", frontier),
            "chain.plain_logits": plain.logits,
            "chain.plain_heads": plain.head_logits,
        }
        documents: dict[str, Any] = {"generation.prefix": coordinate.prefix}
        yield self.trace(begun, documents, coordinate=coordinate, generation=generation)
        for number, planned in enumerate(coordinate.rounds):
            if len(tokens) + coordinate.nodes > coordinate.capacity:
                packed = np.zeros(coordinate.nodes, np.int64)
                asked = f"a tree of {coordinate.nodes} rows behind {len(tokens)}, beyond the cache"
                yield refusal(self, engine, asked, partial(engine.verify, tree, packed))
                return
            if coordinate.ranking is not None:
                vocabulary = coordinate.model.vocabulary
                frontier = ranked_frontier(coordinate.ranking, vocabulary, coordinate.topk)
            arrays: dict[str, Array] = {}
            documents = {"round.tokens": tuple(tokens), "round.refused": None}
            seen = self.trace(
                arrays, documents, coordinate=coordinate, generation=generation, round=number
            )
            try:
                frontier = self.round(
                    engine, coordinate, tree, frontier, tokens, planned, arrays, documents
                )
            except Refused as refused:
                documents["round.refused"] = str(refused)
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
        # Of an engine that never decoded: one with a past might answer from its session's cache.
        plain = self.engine()
        arrays |= plain_passes(plain, coordinate, tokens, proposal.packed)
        path_logits = verified.path_logits
        if coordinate.posterior or planned is not None:
            # The judge's own tree: a steered row must be the row that the path names.
            truth = tree_of(coordinate)
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
        arrays["round.fresh_kv"] = plain.forward(tokens).kv
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

    def selections(self) -> Iterator[Trace]:
        """Lawful logits that need care: some too great for a bare exp, others no number at padding.

        The numbers at padding mean nothing, so neither is a reason to refuse.
        """
        engine, coordinate = self.engine(), self.coordinate
        tree, proposal = self.staged(engine)
        great = along_paths(great_logits(coordinate), tree)
        spoiled = great / GREAT
        spoiled[tree.retrieval < 0] = np.nan
        for path_logits in (great, spoiled):
            arrays: dict[str, Array] = {}
            self.select(engine, coordinate, proposal.candidates, path_logits, arrays)
            yield self.trace(arrays, {"selection.refused": None})

    def staged(self, engine: Any) -> tuple[TreeBuffers, Any]:
        """Prefill an engine, and give one tree that it could verify, and its proposal."""
        coordinate = self.coordinate
        tree = self.compile(engine, coordinate)
        frontier = engine.prefill(coordinate.prefix)
        proposal = engine.propose(tree, frontier, coordinate.topk, coordinate.policy.sentinel)
        return tree, proposal


def plain_passes(
    engine: Any, coordinate: Coordinate, tokens: list[int], packed: Array
) -> dict[str, Array]:
    """Logits and K/V of every row from plain causal passes over the prefix and the row's path."""
    tree = tree_of(coordinate)
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
