"""Exactness: what a mode publishes over a table model, by law and by sample (0x04F)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch

from medusa_reference_engine.draws import Draw, Seeded, outcomes
from medusa_reference_engine.sampling_round import Row, SamplingRound, Step, Weights
from medusa_spec.arrays import FloatArray, RankPath
from medusa_spec.coordinate import Exactness, Sampling
from medusa_spec.laws import OutputLaw, Sampled


@dataclass(frozen=True, slots=True)
class TableView:
    """A frontier of a table model: the row behind one token, and every token's."""

    root: Weights
    heads: Sequence[Weights]
    table: Sequence[Row]

    def rows(self, root: int, tokens: Mapping[RankPath, int]) -> Mapping[RankPath, Row]:
        """A table's rows depend on the node's own token alone."""
        return {(): self.table[root]} | {path: self.table[t] for path, t in tokens.items()}


class ExactnessStage(SamplingRound):
    """Clauses X1 to X11."""

    def law(self, given: Exactness) -> OutputLaw:
        """Every published sequence with its probability, and what is claimed of the mode."""
        sampling, size = given.sampling, given.vocabulary
        views = self.views(given)
        roots, rows = [view.root for view in views], [row.drawn for row in views[0].table]
        law = self.enumerate(given, views)
        target = self.target(given, roots, rows)
        return OutputLaw(
            roots=np.array(roots),
            rows=np.array(rows),
            law=law,
            target=target,
            distance=np.array(self.distance(law, target)),
            path_probability=np.array(
                [
                    [self.path_probability(view, roots[context], path) for path in given.paths]
                    for context, view in enumerate(views)
                ]
            ).reshape(1 + size, len(given.paths)),
            proposal=self.stored(given) if sampling.rejects else None,
            claim=self.claim(sampling),
        )

    def sample(self, given: Exactness, seed: int, count: int) -> Sampled:
        """`count` sequences, drawn one after the other from one generator."""
        views, draw = self.views(given), self.randomness(seed)
        return Sampled(np.array([self.sequence(given, views, draw) for _ in range(count)]))

    def randomness(self, seed: int) -> Draw:
        """Clause X11: the seed is all that the draws depend on."""
        return Seeded(seed)

    def sequence(self, given: Exactness, views: Sequence[TableView], draw: Draw) -> list[int]:
        """Rounds from the start until enough is published; the surplus is cut."""
        tokens: list[int] = []
        carried: int | None = None
        while len(tokens) < given.length:
            view = views[self.context(tokens)]
            step = self.round(view, carried, draw, given.sampling, given.paths)
            tokens += step.tokens
            carried = step.carried
        return tokens[: given.length]

    def context(self, tokens: Sequence[int]) -> int:
        """The row of a table behind what is published: the start's, or the last token's."""
        return 1 + tokens[-1] if tokens else 0

    # The law of rounds

    def enumerate(self, given: Exactness, views: Sequence[TableView]) -> FloatArray:
        """The weights of all rounds, multiplied; sequences that have come together are one."""
        known: dict[tuple[int, int | None], dict[Step, float]] = {}
        law = np.zeros(given.vocabulary**given.length)
        places: dict[tuple[tuple[int, ...], int | None], float] = {((), None): 1.0}
        while places:
            # A round publishes something, so nothing comes back to the shortest.
            place = min(places, key=lambda other: len(other[0]))
            weight = places.pop(place)
            tokens, carried = place
            state = self.context(tokens), carried
            if state not in known:
                known[state] = outcomes(self.program(given, views[state[0]], carried))
            for step, share in known[state].items():
                longer = (tokens + step.tokens)[: given.length]
                if len(longer) == given.length:
                    law[self.index(longer, given.vocabulary)] += weight * share
                else:
                    after = longer, step.carried
                    places[after] = places.get(after, 0.0) + weight * share
        return law

    def program(
        self, given: Exactness, view: TableView, carried: int | None
    ) -> Callable[[Draw], Step]:
        """One round, for whoever draws."""
        return lambda draw: self.round(view, carried, draw, given.sampling, given.paths)

    def index(self, tokens: Sequence[int], vocabulary: int) -> int:
        """The place of a sequence in lexicographic order."""
        place = 0
        for token in tokens:
            place = place * vocabulary + token
        return place

    def target(
        self, given: Exactness, roots: Sequence[Weights], rows: Sequence[Weights]
    ) -> FloatArray:
        """Clause X2: the probabilities along each sequence, multiplied."""
        found = []
        for tokens in product(range(given.vocabulary), repeat=given.length):
            weight = roots[0][tokens[0]]
            for before, token in pairwise(tokens):
                weight *= rows[before][token]
            found.append(weight)
        return np.array(found)

    def distance(self, law: FloatArray, target: FloatArray) -> float:
        """Clause X6."""
        return float(np.abs(law - target).sum() / 2)

    # The table

    def views(self, given: Exactness) -> list[TableView]:
        """The frontier at the start and behind each token."""
        target = torch.log(torch.tensor(given.model, dtype=torch.float64))
        table = [self.tree_row(logits, given.sampling) for logits in target[1:]]
        heads = [[self.normalised([*map(float, row)]) for row in head] for head in given.drafts]
        return [
            TableView(
                self.root_row(logits, given.sampling).drawn,
                [head[self.head_context(context)] for head in heads],
                table,
            )
            for context, logits in enumerate(target)
        ]

    def head_context(self, context: int) -> int:
        """The heads read what the frontier reads, and nothing behind it."""
        return context

    # What is said of a mode

    def path_probability(self, view: TableView, root: Weights, path: RankPath) -> float:
        """Clause X9: over all roots, the target's probability along the path."""
        ranked = self.ranked(view.heads)
        tokens = [ranked[edge][rank] for edge, rank in enumerate(path)]
        total = 0.0
        for first, weight in enumerate(root):
            for before, token in pairwise((first, *tokens)):
                weight *= view.table[before].drawn[token]
            total += weight
        return total

    def stored(self, given: Exactness) -> FloatArray:
        """Clause X8: the probabilities that drafts are drawn with."""
        shape = len(given.drafts), 1 + given.vocabulary, given.vocabulary
        weights = np.array(given.drafts, np.float64).reshape(shape)
        stored: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
        return stored

    def claim(self, sampling: Sampling) -> Mapping[str, Any]:
        """Clauses X7 to X9."""
        mode = sampling.mode
        found = {
            "mode": mode,
            "claim": self.word(mode),
            "scores": self.scores(),
            "rejects": sampling.rejects,
        }
        return found | {"correction": self.correction(mode)} if sampling.rejects else found

    def word(self, mode: str) -> str:
        """Clause X7."""
        exact = {
            "greedy": "greedy-exact",
            "row-draw": "target-law",
            "rejection": "target-law",
        }
        return exact.get(mode, "heuristic")

    def scores(self) -> str:
        """Clause X9: what products of head probabilities are."""
        return "ranking"

    def correction(self, mode: str) -> Mapping[str, Any]:
        """Clause X8: what a rejection needs to be corrected."""
        corrected = mode == "rejection"
        return {
            "proposal_law": "each head's row at the frontier, drawn independently",
            "stored_probabilities": "proposal",
            "randomness": "one uniform number an edge",
            "residual": "positive part of target minus proposal" if corrected else "none",
        }
