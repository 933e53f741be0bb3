"""The reference engine, or a mutant of it, behind the forms of any dialect.

A `Speaker` is asked and answers in the dialect alone: its order of rows is also the order of its
cache, and it takes back no tree but one that it gave. What it does in there is done by an engine
that speaks the canonical form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

import medusa_manifests
from medusa_conformance.line import Factory, Line
from medusa_conformance.runner import Setting, Tally, judge_line, reference_factory
from medusa_conformance.translation import fixed_policy
from medusa_mutations import Mutation
from medusa_spec.claims import Facts
from medusa_spec.coordinate import (
    Calibration,
    Coordinate,
    Exactness,
    Policy,
    Training,
    Workload,
)
from medusa_spec.dialect import Dialect, dialect_from
from medusa_spec.errors import Refused
from medusa_spec.registry import CONTRACTS
from medusa_spec.stages import (
    CacheView,
    Decoded,
    Frontier,
    HeadAlignment,
    Proposal,
    TreeBuffers,
)

GROUP = 5
"""Own slots that stand between two nodes, of which nobody but their engine knows."""

WIDER = 2
"""Columns of padding in which own retrieval rows end."""

IMPOSSIBLE = -1e5
"""The logarithm of an impossible token, in an engine that is given probabilities."""


def dialect(document: dict[str, Any]) -> Dialect:
    """A dialect that gives a reason for whatever it leaves unjudged."""
    reasons = dict.fromkeys(Dialect(**document).tolerated, "as the engine says")
    return dialect_from({**document, "reasons": reasons}, "test")


def judged(factory: Factory, declared: Dialect, coordinates: Iterable[Coordinate]) -> Tally:
    """What coordinates show of an engine that declares a dialect."""
    tally = Tally()
    within = medusa_manifests.tolerance(declared.dtype), medusa_manifests.tolerance("policy")
    for coordinate in coordinates:
        line = Line(fixed_policy(coordinate, declared), factory, *within, dialect=declared)
        judge_line(line, frozenset(CONTRACTS), tally)
    return tally


def speaker(
    dialect: Dialect, mutation: Mutation | None = None, **more: Any
) -> Callable[[Coordinate, int], Any]:
    """Makes engines that speak a dialect, around the reference engine or around a mutant."""
    make = reference_factory(Setting("cpu", dialect.dtype), mutation)

    def speaking(coordinate: Coordinate, capacity: int) -> Speaker:
        return Speaker(make(coordinate, capacity), dialect, coordinate, **more)

    return speaking


@dataclass(frozen=True)
class Known:
    """A tree in both forms. `rows[i]` is the canonical row of own row `i`, `paths` likewise."""

    own: TreeBuffers
    inner: TreeBuffers
    rows: Any
    paths: Any

    @property
    def back(self) -> Any:
        """The own row of each canonical row."""
        return np.array([list(self.rows).index(row) for row in range(len(self.rows))])

    @property
    def width(self) -> int:
        """Of its own retrieval rows."""
        return int(self.own.retrieval.shape[1])


class Speaker:
    """An engine whose every answer has the form that its dialect declares."""

    def __init__(
        self, inner: Any, dialect: Dialect, coordinate: Coordinate, hidden: Any = -np.inf
    ) -> None:
        self.inner, self.speaks, self.coordinate, self.hidden = inner, dialect, coordinate, hidden
        self.known: list[Known] = []
        self.staged: Known | None = None
        self.unmoved: Any = None

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name.startswith("_") or not callable(found) or self.speaks.refusals == "refused":
            return found

        def failing(*given: Any) -> Any:
            try:
                return found(*given)
            except Refused as refused:
                raise RuntimeError(str(refused)) from None

        return failing

    def policy_of(self, policy: Policy) -> Policy:
        """Its own constants, whatever it is given."""
        return replace(policy, **self.speaks.policy)

    def admit(self, document: Any) -> Any:
        return self.inner.admit(document)

    def apply_heads(self, state: Any, hidden: Any) -> Any:
        return self.inner.apply_heads(state, hidden)

    def align_heads(self, tokens: Any, owned: Any, heads: int) -> HeadAlignment:
        if self.speaks.labels == "pre-shifted":
            # No head has the first token for a label, so any number may stand there.
            tokens = np.concatenate([np.zeros_like(tokens[:, :1]), tokens[:, :-1]], axis=1)
            owned = np.concatenate([np.zeros_like(owned[:, :1]), owned[:, :-1]], axis=1)
        found: HeadAlignment = self.inner.align_heads(tokens, owned, heads)
        return found

    def search_tree(self, calibration: Calibration) -> Any:
        return self.inner.search_tree(calibration)

    def cost(self, workload: Workload) -> Any:
        return self.inner.cost(workload)

    def law(self, exactness: Exactness) -> Any:
        return self.inner.law(exactness)

    def sample(self, exactness: Exactness, seed: int, count: int) -> Any:
        return self.inner.sample(exactness, seed, count)

    def train_step(self, training: Training, step: int) -> Any:
        if self.speaks.empty_heads == "reject":
            owned = np.array(training.owned)
            for head in range(len(training.head_weights)):
                if not owned[:, head + 2 :].any():
                    raise Refused(f"head {head} has no label")
        return self.inner.train_step(training, step)

    def publish_claims(self, facts: Facts) -> Any:
        return self.inner.publish_claims(facts)

    def node_count(self, branching: Any) -> int:
        return int(self.inner.node_count(branching))

    def label(self, policy: Policy) -> Any:
        return self.inner.label(policy)

    def forward(self, tokens: Any) -> Any:
        return self.inner.forward(tokens)

    def prefill(self, tokens: Any) -> Frontier:
        found: Frontier = self.inner.prefill(tokens)
        self.staged, self.unmoved = None, None
        return found

    def compile_tree(
        self, choices: Sequence[Any], topk: int, retrieval_order: str, sentinel: int
    ) -> TreeBuffers:
        order = self.speaks.policy.get("retrieval_order", retrieval_order)
        padding = self.speaks.policy.get("sentinel", sentinel)
        inner = self.inner.compile_tree(self.paths_of(choices), topk, order, padding)
        made = self.known_as(inner, topk, padding)
        self.known.append(made)
        return made.own

    def paths_of(self, choices: Sequence[Any]) -> list[Any]:
        """Every node's path, whatever form of choices it takes."""
        if self.speaks.choices == "branching":
            levels = range(1, len(choices) + 1)
            return [path for d in levels for path in product(*map(range, choices[:d]))]
        if self.speaks.choices == "paths":
            return list(choices)
        return sorted({leaf[:depth] for leaf in choices for depth in range(1, len(leaf) + 1)})

    def known_as(self, inner: TreeBuffers, topk: int, padding: int) -> Known:
        """A tree in its own form."""
        rows, paths = np.arange(len(inner.paths)), np.arange(len(inner.retrieval))
        if self.speaks.node_order == "own":
            # Depth first: each node, and then all that is below it.
            rows = np.array(sorted(rows, key=lambda row: inner.paths[row]))
        own_row = np.argsort(rows)
        retrieval = inner.retrieval
        if self.speaks.retrieval == "own":
            paths = np.roll(paths[::-1], 1)
            columns = np.full((len(retrieval), WIDER), padding)
            retrieval = np.concatenate([retrieval, columns], axis=1)
        real = (retrieval >= 0) & (retrieval < len(rows))
        moved = np.where(real, own_row[np.where(real, retrieval, 0)], retrieval)
        mask = inner.mask
        if mask.shape == (len(rows), len(rows)):
            mask = mask[np.ix_(rows, rows)]
        own = TreeBuffers(
            tuple(inner.paths[row] for row in rows),
            self.slots_of(inner.slots[rows], topk),
            self.mask_of(mask[1:, 1:] if self.speaks.mask_root == "absent" else mask),
            inner.depths[rows],
            moved[paths],
        )
        return Known(own, inner, rows, paths)

    def slots_of(self, slots: Any, topk: int) -> Any:
        stride = self.speaks.slots
        if stride == "canonical":
            return slots
        if stride == "own":
            return np.array([GROUP * row for row in range(len(slots))])
        return np.array([s and 1 + (s - 1) // topk * stride + (s - 1) % topk for s in slots])

    def mask_of(self, mask: Any) -> Any:
        if self.speaks.mask == "boolean":
            return mask
        if self.speaks.mask == "additive":
            return np.where(mask, 0.0, self.hidden)[None, None]
        bits = int(self.speaks.mask[len("packed") :])
        words = -(-mask.shape[1] // bits)
        spread = np.zeros((len(mask), words * bits), np.uint8)
        spread[:, : mask.shape[1]] = mask
        return np.packbits(spread, axis=1, bitorder="little").view(f"<u{bits // 8}")

    def tree_of(self, given: TreeBuffers) -> Known:
        """What it knows of a tree that it gave; of another it knows what it can read."""
        for made in self.known:
            same = (np.array_equal(getattr(made.own, n), getattr(given, n)) for n in BUFFERS)
            if made.own.paths == given.paths and all(same):
                return made
        plain = np.arange(len(given.paths)), np.arange(len(given.retrieval))
        return Known(given, given, *plain)

    def propose(self, tree: TreeBuffers, frontier: Any, topk: int, sentinel: int) -> Proposal:
        known, padding = self.tree_of(tree), self.speaks.policy.get("sentinel", sentinel)
        ties = self.speaks.topk_ties == "any"
        heads = frontier.heads[:, ::-1].copy() if ties else frontier.heads
        found = self.inner.propose(known.inner, Frontier(frontier.target, heads), topk, padding)
        table, packed, candidates = found.table, found.packed, found.candidates
        if ties:
            # The last of equals comes first, which no rule of the dialect forbids.
            last = frontier.heads.shape[1] - 1
            table, packed = (np.append(t[:1], last - t[1:]) for t in (table, packed))
            drafted = np.where(candidates < 0, candidates, last - candidates)
            candidates = np.concatenate([candidates[:, :1], drafted[:, 1:]], axis=1)
        packed, candidates = packed[known.rows], candidates[known.paths]
        wider = known.width - candidates.shape[1]
        candidates = np.pad(candidates, ((0, 0), (0, max(wider, 0))), constant_values=padding)
        if self.speaks.pad_token is not None:
            candidates = np.where(candidates < 0, self.speaks.pad_token, candidates)
        return Proposal(self.table_of(table, packed, topk), packed, candidates)

    def table_of(self, table: Any, packed: Any, topk: int) -> Any:
        stride = self.speaks.slots
        if stride == "own":
            whole = np.zeros(1 + GROUP * len(packed), np.int64)
            whole[[GROUP * row for row in range(len(packed))]] = packed
            return whole
        if stride == "canonical":
            return table
        levels = table[1:].reshape(-1, topk)
        return np.append(table[:1], np.pad(levels, ((0, 0), (0, stride - topk))))

    def verify(self, tree: TreeBuffers, packed: Any) -> dict[str, Any]:
        known = self.tree_of(tree)
        found = self.inner.verify(known.inner, packed[known.back])
        self.staged, self.unmoved = known, None
        rows, before = known.rows, found.mask.shape[1] - len(found.mask)
        committed = self.inner.cache().length
        order = [*range(before), *(before + rows)]
        positions = found.positions[rows]
        path_logits = found.path_logits[known.paths]
        if known.width > path_logits.shape[1]:
            wider = known.width - path_logits.shape[1]
            path_logits = np.pad(path_logits, ((0, 0), (0, wider), (0, 0)))
        relative = self.speaks.positions == "relative"
        return {
            "logits": found.logits[rows],
            "head_logits": found.head_logits[:, rows],
            "path_logits": path_logits,
            "mask": self.mask_of(found.mask[np.ix_(rows, order)]),
            "positions": positions - committed if relative else positions,
            "rows": self.physical(known, found.rows[rows], committed),
            "kv": found.kv[:, :, :, rows],
        }

    def physical(self, known: Known, rows: Any, committed: int) -> Any:
        """Cache rows by its own numbers, where a staged tree has them."""
        own = {committed + row: committed + place for place, row in enumerate(known.rows)}
        return np.array([own.get(int(row), int(row)) for row in rows], np.int64)

    def select(self, candidates: Any, path_logits: Any, policy: Policy) -> Any:
        speaks, own = self.speaks, self.policy_of(policy)
        if speaks.posterior_input == "probabilities":
            possible = path_logits > 0
            logs = np.where(np.isnan(path_logits), np.nan, IMPOSSIBLE)
            np.log(path_logits, out=logs, where=possible)
            path_logits = logs * (own.temperature or 1.0)
        if speaks.pad_token is not None:
            candidates = np.where(self.padding(candidates.shape), own.sentinel, candidates)
        found, more = self.inner.select(candidates, path_logits, own), EXTRA[speaks.accepted]
        return replace(found, accepted=found.accepted + more, lengths=found.lengths + more)

    def padding(self, shape: tuple[int, ...]) -> Any:
        """Where candidates of its tree are padded, which their tokens do not say."""
        at = self.coordinate
        trees = [self.inner.compile_tree(at.paths, at.topk, at.policy.retrieval_order, -1)]
        trees += [made.inner for made in self.known]
        found = next(t.retrieval for t in reversed(trees) if t.retrieval.shape == shape)
        return found < 0

    def commit(self, path: int, accepted: int, end_of_sequence: int | None) -> Any:
        end = None if self.speaks.end_of_sequence == "loop" else end_of_sequence
        known, before = self.staged, self.inner.cache()
        if known is not None and 0 <= path < len(known.paths):
            path = int(known.paths[path])
        plan = self.inner.commit(path, accepted - EXTRA[self.speaks.accepted], end)
        self.staged = None
        if self.speaks.kv_move == "lazy":
            self.unmoved = self.backing(before, known)
        if known is None:
            return plan
        return replace(plan, source=self.physical(known, plan.source, before.length))

    def cache(self) -> CacheView:
        view = self.inner.cache()
        if self.unmoved is not None:
            return CacheView(self.unmoved, view.length)
        return CacheView(self.backing(view, self.staged), view.length)

    def backing(self, view: CacheView, known: Known | None) -> Any:
        """The cache, in which a staged tree stands in its own order."""
        backing = view.backing.copy()
        if known is not None:
            backing[:, :, :, view.length : view.length + len(known.rows)] = view.backing[
                :, :, :, view.length + known.rows
            ]
        return backing

    def generate(
        self,
        prefix: Any,
        how_many: int,
        choices: Any,
        topk: int,
        policy: Policy,
        end_of_sequence: int | None,
    ) -> Decoded:
        paths, own = self.paths_of(choices), self.policy_of(policy)
        self.staged, self.unmoved = None, None
        if self.speaks.end_of_sequence == "commit":
            return self.decoded(prefix, how_many, paths, topk, own, end_of_sequence)
        found = self.decoded(prefix, how_many, paths, topk, own, None)
        tokens, grown, rounds = list(found.tokens), 0, 0
        if end_of_sequence in tokens:
            tokens = tokens[: tokens.index(end_of_sequence) + 1]
        # The loop ends behind the round that has published the end, whatever followed it there.
        while grown < len(tokens):
            grown, rounds = grown + found.published[rounds], rounds + 1
        return Decoded(tuple(tokens), found.published[:rounds], found.frontiers[:rounds])

    def decoded(self, *given: Any) -> Decoded:
        found: Decoded = self.inner.generate(*given)
        return found


BUFFERS = ("slots", "mask", "depths", "retrieval")

EXTRA = {"edges": 0, "with-root": 1, "with-bonus": 2}
