"""The straight line of one coordinate: what is asked of an engine, and the traces that it leaves.

Every section asks for some stages and yields the traces of what they answered. A `Refused` where
nothing unlawful was asked is an observation. Where a stage is missing, or was not made for what it
is asked, the section ends; the judge's own derivation stands in for one whose answer is only
handed on. Any other exception is a crash, and the line goes on with the next section.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from medusa_conformance.checkpoint import checkpoint
from medusa_conformance.crafted import (
    GREAT,
    along_paths,
    alter_head,
    coarse_frontier,
    coarse_logits,
    great_logits,
    mirrored,
    other_mode,
    prescribed_logits,
    random_heads,
    ranked_frontier,
    unsorted,
)
from medusa_conformance.exactness import laws, samples
from medusa_conformance.generation import generation
from medusa_conformance.incident import Incident, IncidentKind
from medusa_conformance.isolation import Isolated, Missing, Record
from medusa_conformance.plain_engine import PlainEngine
from medusa_conformance.probes import unlawful_documents
from medusa_conformance.refusal import is_refusal
from medusa_conformance.renewal import restaging
from medusa_conformance.rounds import decoding, plain
from medusa_conformance.search import search
from medusa_conformance.training import training
from medusa_conformance.translation import Engine, Translated
from medusa_conformance.unlawful import unlawful_commit, unlawful_logits, unlawful_staging
from medusa_oracles.posterior import derive_selection
from medusa_oracles.proposal import derive_proposal, derive_table
from medusa_oracles.tree import gather_rows, tree_of
from medusa_spec.arrays import Array
from medusa_spec.coordinate import Coordinate
from medusa_spec.dialect import CANONICAL, Dialect
from medusa_spec.errors import Refused, Unsupported, one_line
from medusa_spec.registry import CONTRACTS
from medusa_spec.stages import Frontier, Proposal, Selection, TreeBuffers, arrays_of
from medusa_spec.trace import Tolerance, Trace

Factory: TypeAlias = Callable[[Coordinate, int], Any]
"""Makes a fresh engine for a coordinate's model, with a cache of so many rows."""


@dataclass(frozen=True, slots=True)
class Crash:
    """No answer that can be judged, and the section that ends with it.

    `asked` is false where the stage was not asked at all, because of an earlier crash.
    """

    section: str
    kind: IncidentKind
    stage: str
    error: str
    asked: bool = True


@dataclass(frozen=True)
class Line:
    """One coordinate, an engine factory, and the tolerances to judge by.

    `record` counts what the engine was asked, `dialect` is what it declares.
    """

    coordinate: Coordinate
    factory: Factory
    tolerance: Tolerance
    policy_tolerance: Tolerance
    record: Record = field(default_factory=Record)
    dialect: Dialect = CANONICAL

    def run(self, contracts: Collection[str] = CONTRACTS) -> Iterator[Trace | Crash]:
        """The sections that exercise any of `contracts`, in the order of the contracts.

        A lawful request that is refused is a breach of the round in any of them.
        """
        for section, own in SECTIONS:
            if "round" not in contracts and own.isdisjoint(contracts):
                continue
            try:
                yield from section(self)
            except (Missing, Unsupported):
                # The record says so; what was seen before it has been judged.
                continue
            except Refused as refused:
                # Nothing unlawful was asked; the sections that do ask for it catch the answer.
                yield self.trace({}, {"round.refused": str(refused)})
            except Incident as incident:
                kind, stage = incident.kind, incident.stage
                yield Crash(section.__name__, kind, stage, incident.text, incident.asked)
            except Exception as error:
                # An answer that the line itself cannot hand on, such as rows that are not there.
                text = f"what was answered cannot be used: {type(error).__name__}: {error}"
                yield Crash(section.__name__, "rubbish", "", one_line(text))

    def trace(self, arrays: dict[str, Array], documents: dict[str, Any], **more: Any) -> Trace:
        """A trace of this line's coordinate, or of the one in `more`."""
        coordinate = more.pop("coordinate", self.coordinate)
        tolerances = self.tolerance, self.policy_tolerance
        return Trace(coordinate, *tolerances, arrays, documents, dialect=self.dialect, **more)

    def engine(self, capacity: int | None = None) -> Engine:
        """A fresh engine; the coordinate's own capacity unless told otherwise."""
        rows = self.coordinate.capacity if capacity is None else capacity
        try:
            made = self.factory(self.coordinate, rows)
        except (Refused, Unsupported) as no:
            # What it has, it has, though nobody can ask for it here.
            self.record.present |= getattr(self.factory, "stages", frozenset())
            self.record.decline("start", no)
            raise
        except Incident:
            raise
        except (Exception, SystemExit) as error:
            text = f"{type(error).__name__}: {error}"
            raise Incident("crash", "start", text) from error
        isolated = Isolated(made, self.record)
        if self.dialect == CANONICAL:
            return isolated
        return Translated(isolated, self.dialect)

    @cached_property
    def plain(self) -> PlainEngine:
        """The engine whose plain passes stand beside what the others decode."""
        return PlainEngine(self.engine)

    def compile(self, engine: Engine, coordinate: Coordinate) -> TreeBuffers:
        """The engine's buffers for a coordinate's tree; the judge's own where it has none."""
        if not engine.has("compile_tree"):
            return tree_of(coordinate)
        policy = coordinate.policy
        buffers: TreeBuffers = engine.compile_tree(
            unsorted(coordinate.paths), coordinate.topk, policy.retrieval_order, policy.sentinel
        )
        return buffers

    def informed(self) -> Engine:
        """A fresh engine, which knows what it must to select.

        Of candidates with a pad token, the tree that it compiled alone says which are padding.
        """
        engine = self.engine()
        if self.dialect.pad_token is not None:
            self.compile(engine, self.coordinate)
        return engine

    def otherwise(self) -> Coordinate:
        """The coordinate under another TOPK and policy, as far as the engine leaves them open.

        Slots of a stride of its own say nothing of TOPK.
        """
        coordinate, fixed = self.coordinate, self.dialect.policy
        given, topk = coordinate.policy, coordinate.topk + 1
        order = "canonical" if given.retrieval_order == "pinned" else "pinned"
        other: dict[str, Any] = {
            "retrieval_order": order,
            "sentinel": given.sentinel - 1,
            **fixed,
        }
        if self.dialect.slots != "canonical" or topk > coordinate.model.vocabulary:
            topk = coordinate.topk
        return replace(coordinate, topk=topk, policy=replace(given, **other), expected={})

    def propose(
        self, engine: Engine, coordinate: Coordinate, tree: TreeBuffers, frontier: Frontier
    ) -> tuple[dict[str, Array], Proposal]:
        """What was observed of a proposal, and a whole one to go on with."""
        topk, sentinel = coordinate.topk, coordinate.policy.sentinel
        truth = tree_of(coordinate)
        if engine.has("propose"):
            observed: Proposal = engine.propose(tree, frontier, topk, sentinel)
            packed = observed.packed
            if packed is None:
                raise Missing("propose")
            seen = arrays_of("frontier", frontier) | arrays_of("proposal", observed)
            if observed.candidates is None and packed.shape == (coordinate.nodes,):
                candidates = gather_rows(packed, truth.retrieval, sentinel)
                observed = replace(observed, candidates=candidates)
            return seen, observed
        if frontier.heads is None or frontier.target is None:
            raise Missing("propose")
        table = derive_table(frontier.target, frontier.heads, topk)
        own = derive_proposal(table, truth, sentinel)
        # Handed on, and no part of what the engine proposed: so without the frontier beside it.
        return {"proposal.packed": own.packed}, own

    def select(
        self,
        engine: Engine,
        coordinate: Coordinate,
        candidates: Array,
        path_logits: Array,
    ) -> tuple[dict[str, Array], Selection]:
        """What was given and observed of a selection, and one to go on with."""
        if not engine.has("select"):
            own = derive_selection(candidates, path_logits, coordinate.policy)
            # Handed on, and not the engine's: so without the logits that it would be judged by.
            handed = {"path": own.path, "accepted": own.accepted}
            return {f"selection.{name}": np.asarray(n) for name, n in handed.items()}, own
        selection: Selection = engine.select(candidates, path_logits, coordinate.policy)
        arrays = arrays_of("selection", selection)
        arrays["selection.candidates"], arrays["selection.path_logits"] = candidates, path_logits
        if selection.path is None or selection.accepted is None:
            raise Incident("rubbish", "select", "no path and accepted length was answered")
        return arrays, selection

    def admission(self) -> Iterator[Trace]:
        """The lawful document, and one broken document for each rule that it can break."""
        # What is expected of a round is the judge's, and no part of what an engine is given.
        engine, document = self.engine(), replace(self.coordinate, expected={}).document()
        other_order = document | {"paths": document["paths"][::-1]}
        lawful = document, other_order
        for given in (*lawful, *unlawful_documents(document)):
            seen: dict[str, Any] = {"coordinate.given": given, "coordinate.refused": None}
            try:
                admitted = engine.admit(given)
            except Refused as refusal:
                seen["coordinate.refused"] = str(refusal)
            except Incident as incident:
                if given in lawful or not is_refusal(self, incident):
                    raise
                seen["coordinate.refused"] = incident.text
            else:
                shown = {"admitted": admitted.document, "rows": admitted.rows}
                seen |= {f"coordinate.{n}": v for n, v in shown.items() if v is not None}
            yield self.trace({}, seen)

    def heads(self) -> Iterator[Trace]:
        """Random heads on random hidden states, twice; as many sequences as heads: axes alias."""
        shape, heads = self.coordinate.model, self.coordinate.heads
        if heads == 0:
            return
        engine = self.engine()
        generator = np.random.default_rng([self.coordinate.policy.seed, heads])
        for length in (1 + generator.permutation(4)[:2]).tolist():
            given = random_heads(generator, self.coordinate)
            hidden = generator.normal(size=(heads, length, shape.hidden))
            arrays = {
                **arrays_of("heads.given", given),
                **arrays_of("heads", engine.apply_heads(given, hidden)),
                "heads.hidden": hidden,
            }
            altered = int(generator.integers(heads))
            other = alter_head(given, altered)
            if other is not None:
                arrays["heads.altered_logits"] = engine.apply_heads(other, hidden).logits
                arrays["heads.altered_head"] = np.asarray(altered)
            yield self.trace(arrays, {})

    def alignment(self) -> Iterator[Trace]:
        """Labels of random batches of several sizes, of which about half are owned."""
        heads, vocabulary = self.coordinate.heads, self.coordinate.model.vocabulary
        if heads == 0:
            return
        engine = self.engine()
        generator = np.random.default_rng([self.coordinate.policy.seed, heads, 2])
        # Of two tokens or fewer no head has a label, and nothing depends on the batch.
        for batch, least in ((3, 3), (1, 3), (2, 1)):
            length = int(generator.integers(least, heads + 4))
            tokens = generator.integers(0, vocabulary, (batch, length))
            owned = generator.random((batch, length)) < 0.5
            observed = arrays_of("heads", engine.align_heads(tokens, owned, heads))
            yield self.trace(observed | {"heads.tokens": tokens, "heads.owned_tokens": owned}, {})

    def tree(self) -> Iterator[Trace]:
        """Tree compilation."""
        engine, coordinate, other = self.engine(), self.coordinate, self.otherwise()
        if not engine.has("compile_tree"):
            raise Missing("compile_tree")
        # Buffers are those of the paths, of TOPK and of the policy: first all others, then one.
        before = [replace(coordinate, topk=other.topk), replace(coordinate, policy=other.policy)]
        if self.dialect.choices != "branching":
            before.insert(0, replace(other, paths=mirrored(other)))
        for given in before:
            with suppress(Unsupported):
                self.compile(engine, given)
        tree = self.compile(engine, coordinate)
        documents = {} if tree.paths is None else {"tree.paths": tree.paths}
        yield self.trace(arrays_of("tree", tree), documents)

    def node_count(self) -> Iterator[Trace]:
        """The node count of a regular tree."""
        branching = self.coordinate.branching
        if branching is not None:
            engine = self.engine()
            engine.node_count((*branching, 2))
            counted = np.asarray(engine.node_count(branching))
            yield self.trace({"tree.node_count": counted}, {})

    def proposals(self) -> Iterator[Trace]:
        """Proposals from a frontier in which many logits are equal, and from a prescribed one."""
        engine, coordinate, other = self.engine(), self.coordinate, self.otherwise()
        frontiers = self.frontiers()
        if engine.has("propose"):
            with suppress(Unsupported):
                # Candidates are those of TOPK and of the sentinel, so both are others before.
                tree = self.compile(engine, other)
                engine.propose(tree, frontiers[0], other.topk, other.policy.sentinel)
        tree = self.compile(engine, coordinate)
        for frontier in frontiers:
            arrays, _ = self.propose(engine, coordinate, tree, frontier)
            yield self.trace(arrays, {})

    def frontiers(self) -> list[Frontier]:
        """The coarse frontier, and the one that the coordinate prescribes."""
        coordinate, vocabulary = self.coordinate, self.coordinate.model.vocabulary
        found = [coarse_frontier(coordinate)]
        if coordinate.ranking is not None:
            found.append(ranked_frontier(coordinate.ranking, vocabulary, coordinate.topk))
        return found

    def lawful_proposal(self) -> Proposal:
        """What a right engine proposes from the last of those frontiers."""
        coordinate, frontier = self.coordinate, self.frontiers()[-1]
        table = derive_table(frontier.target, frontier.heads, coordinate.topk)
        return derive_proposal(table, tree_of(coordinate), coordinate.policy.sentinel)

    def decisions(self) -> Iterator[Trace]:
        """Selections of an engine without a model, from logits that a round would have prescribed.

        Where there is a model, its rounds show the same.
        """
        coordinate = self.coordinate
        if self.engine().has("prefill", "verify"):
            return
        engine = self.informed()
        proposal = self.lawful_proposal()
        for number, planned in enumerate(coordinate.rounds):
            rows = prescribed_logits(coordinate, planned, proposal.packed, number)
            if rows is None:
                rows = coarse_logits(coordinate, number)
            path_logits = along_paths(rows, tree_of(coordinate))
            arrays, _ = self.select(engine, coordinate, proposal.candidates, path_logits)
            documents: dict[str, Any] = {"selection.refused": None}
            if engine.has("label"):
                documents["selection.label"] = engine.label(coordinate.policy)
            yield self.trace(arrays, documents)

    def selections(self) -> Iterator[Trace]:
        """Lawful logits that need care: some too great for a bare exp, others no number at padding.

        The numbers at padding mean nothing, so neither is a reason to refuse. Then logits of which
        the other mode accepts other edges, as far as the engine was made for it.
        """
        engine, coordinate = self.informed(), self.coordinate
        truth, candidates = tree_of(coordinate), self.lawful_proposal().candidates
        great = along_paths(great_logits(coordinate), truth)
        spoiled = great / GREAT
        spoiled[truth.retrieval < 0] = np.nan
        other = replace(coordinate, policy=other_mode(coordinate.policy), expected={})
        coarse = along_paths(coarse_logits(coordinate, 0), truth)
        for given, path_logits in ((coordinate, great), (coordinate, spoiled), (other, coarse)):
            arrays, _ = self.select(engine, given, candidates, path_logits)
            yield self.trace(arrays, {"selection.refused": None}, coordinate=given)


ROUNDS = frozenset({"proposal", "verification", "posterior", "commit", "round"})
"""What is seen of whole rounds."""

SECTIONS: tuple[tuple[Callable[[Line], Iterator[Trace]], frozenset[str]], ...] = (
    (Line.admission, frozenset({"coordinate"})),
    (Line.heads, frozenset({"heads"})),
    (Line.alignment, frozenset({"heads"})),
    (plain, frozenset({"heads"})),
    (Line.tree, frozenset({"tree"})),
    (Line.node_count, frozenset({"tree"})),
    (Line.proposals, frozenset({"proposal"})),
    (decoding, ROUNDS),
    (Line.decisions, frozenset({"posterior"})),
    (Line.selections, frozenset({"posterior"})),
    (unlawful_logits, frozenset({"posterior"})),
    (restaging, ROUNDS),
    (unlawful_commit, ROUNDS),
    (unlawful_staging, ROUNDS),
    (generation, frozenset({"commit", "round"})),
    (search, frozenset({"search"})),
    *((section, frozenset({"exactness"})) for section in (laws, samples)),
    (training, frozenset({"training"})),
    (checkpoint, frozenset({"checkpoint"})),
)
"""Every section in the order of the contracts, with those that its traces exercise."""
