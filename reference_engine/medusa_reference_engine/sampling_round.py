"""A sampling round over rows of probabilities, and how those rows are made (0x04E, 0x04F).

Each mode is written once, for any way to draw: with every outcome weighed it gives a law, with a
seed it gives tokens, of a table (`exactness`) as of the real decoder (`sampled_decoding`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from medusa_reference_engine.draws import Draw
from medusa_spec.arrays import RankPath
from medusa_spec.coordinate import Sampling

Weights: TypeAlias = list[float]

TYPICAL = ("fast-typical", "typical-per-path")
"""The modes whose rows are cut by the typical threshold."""


class Row(NamedTuple):
    """A target row at a temperature, and what is drawn from: the row cut and renormalised."""

    tempered: Weights
    drawn: Weights


class Step(NamedTuple):
    """What a round published, the node that it ended at, and the next root where it is known."""

    tokens: tuple[int, ...]
    path: RankPath
    carried: int | None


class View(Protocol):
    """What a round sees: a frontier, and the target's rows once the tree has tokens."""

    @property
    def root(self) -> Weights:
        """The processed row that a root is drawn from."""

    @property
    def heads(self) -> Sequence[Weights]:
        """`[K, V]`, the probabilities of each head."""

    def rows(self, root: int, tokens: Mapping[RankPath, int]) -> Mapping[RankPath, Row]:
        """The processed row at the root, `()`, and at each node."""


class SamplingRound:
    """Rounds of every mode, clauses X1 and X3 to X5."""

    def round(
        self,
        view: View,
        carried: int | None,
        draw: Draw,
        sampling: Sampling,
        paths: Sequence[RankPath],
    ) -> Step:
        """Root, candidates, verification, acceptance: once."""
        root = self.root(view, carried, draw, sampling)
        tokens = self.candidates(view, draw, sampling, paths)
        rows = view.rows(root, tokens)
        path, after = self.accept(view, rows, tokens, draw, sampling, paths)
        published = (root, *(tokens[path[: edge + 1]] for edge in range(len(path))))
        return Step(published, path, after)

    def root(self, view: View, carried: int | None, draw: Draw, sampling: Sampling) -> int:
        """The token that was carried on; else the likeliest, or one that is drawn, by mode."""
        if carried is not None:
            return carried
        if sampling.mode in ("greedy", "fast-typical"):
            return view.root.index(max(view.root))
        return draw(view.root)

    def candidates(
        self, view: View, draw: Draw, sampling: Sampling, paths: Sequence[RankPath]
    ) -> dict[RankPath, int]:
        """The token of each node: a rank of its depth's head, or a draft drawn from it."""
        heads = view.heads
        if sampling.rejects:
            return {path: draw(heads[len(path) - 1]) for path in paths}
        ranked = self.ranked(heads)
        return {path: ranked[len(path) - 1][path[-1]] for path in paths}

    def ranked(self, heads: Sequence[Weights]) -> list[list[int]]:
        """The tokens of each head, the likeliest first, and of equal ones the lower."""
        return [sorted(range(len(q)), key=lambda token: (-q[token], token)) for q in heads]

    def accept(
        self,
        view: View,
        rows: Mapping[RankPath, Row],
        tokens: Mapping[RankPath, int],
        draw: Draw,
        sampling: Sampling,
        paths: Sequence[RankPath],
    ) -> tuple[RankPath, int | None]:
        """The accepted node, and the next root where the mode knows it."""
        mode = sampling.mode
        if mode == "fast-typical":
            return self.by_threshold(rows, tokens, sampling, paths), None
        if mode in ("typical-per-path", "nucleus-per-path"):
            return self.by_path(rows, tokens, draw, paths), None
        if mode in ("greedy", "row-draw"):
            return self.by_row(rows, tokens, draw)
        return self.by_rejection(view, rows, tokens, draw, sampling, paths)

    def by_row(
        self, rows: Mapping[RankPath, Row], tokens: Mapping[RankPath, int], draw: Draw
    ) -> tuple[RankPath, int | None]:
        """One draw a row: it leads to the child that it matches, or is the next root."""
        node: RankPath = ()
        while True:
            token = draw(rows[node].drawn)
            below = [path for path, t in tokens.items() if path[:-1] == node and t == token]
            if not below:
                return node, self.carry(token)
            (node,) = below

    def carry(self, token: int) -> int | None:
        """What a draw that matches nothing is kept for."""
        return token

    def by_path(
        self,
        rows: Mapping[RankPath, Row],
        tokens: Mapping[RankPath, int],
        draw: Draw,
        paths: Sequence[RankPath],
    ) -> RankPath:
        """A draw for each path and position, and the longest match, of equal ones the first."""
        best: RankPath = ()
        for leaf in leaves(paths):
            node: RankPath = ()
            for edge in range(len(leaf)):
                if draw(rows[node].drawn) != tokens[leaf[: edge + 1]]:
                    break
                node = leaf[: edge + 1]
            best = self.longer(best, node)
        return best

    def longer(self, best: RankPath, node: RankPath) -> RankPath:
        """Which of two matches wins, of which the second was found later."""
        return node if len(node) > len(best) else best

    def by_threshold(
        self,
        rows: Mapping[RankPath, Row],
        tokens: Mapping[RankPath, int],
        sampling: Sampling,
        paths: Sequence[RankPath],
    ) -> RankPath:
        """The longest path above the threshold, of equal ones the likeliest; nothing is drawn."""
        best: tuple[int, float, RankPath] = 0, 0.0, ()
        for leaf in leaves(paths):
            node: RankPath = ()
            likelihood = 0.0
            for edge in range(len(leaf)):
                below = leaf[: edge + 1]
                chance = rows[node].tempered[tokens[below]]
                if not chance > self.threshold(rows[node].tempered, sampling):
                    break
                node, likelihood = below, likelihood + log(chance)
            if node and (not best[2] or (len(node), likelihood) > best[:2]):
                best = len(node), likelihood, node
        return best[2]

    def by_rejection(
        self,
        view: View,
        rows: Mapping[RankPath, Row],
        tokens: Mapping[RankPath, int],
        draw: Draw,
        sampling: Sampling,
        paths: Sequence[RankPath],
    ) -> tuple[RankPath, int | None]:
        """A chain of drafts, each accepted or not; behind the last one a draw from the target."""
        node: RankPath = ()
        for path in paths:
            target, proposal, token = rows[node].drawn, view.heads[len(node)], tokens[path]
            accepted = self.acceptance(target[token], proposal[token])
            if draw((accepted, 1 - accepted)) == 1:
                return node, draw(self.after_rejection(target, proposal, sampling))
            node = path
        return node, draw(rows[node].drawn)

    def acceptance(self, target: float, proposal: float) -> float:
        """How probably a draft is accepted."""
        return min(1.0, target / proposal)

    def after_rejection(self, target: Weights, proposal: Weights, sampling: Sampling) -> Weights:
        """What is drawn from in place of a rejected draft."""
        if sampling.mode == "rejection-uncorrected":
            return target
        residual = self.residual(target, proposal)
        # Rounding alone can reject where the two rows are the same, and then nothing is left over.
        return self.normalised(residual) if any(residual) else target

    def residual(self, target: Weights, proposal: Weights) -> Weights:
        """The positive part of what the target has more than the proposal."""
        return [max(0.0, p - q) for p, q in zip(target, proposal, strict=True)]

    def normalised(self, weights: Weights) -> Weights:
        """Weights that add up to 1."""
        total = sum(weights)
        return [weight / total for weight in weights]

    def root_row(self, logits: Tensor, sampling: Sampling) -> Row:
        """Clause X1 for the row that a root is drawn from, of logits `[V]`."""
        return self.processed(logits, sampling)

    def tree_row(self, logits: Tensor, sampling: Sampling) -> Row:
        """Clause X1 for a row of the tree, of logits `[V]`."""
        return self.processed(logits, sampling)

    def processed(self, logits: Tensor, sampling: Sampling) -> Row:
        """Clause X1: temperature, then the mode's cut, then a sum of 1."""
        if sampling.temperature == 0:
            values: Weights = logits.tolist()
            likeliest = values.index(max(values))
            single = [float(token == likeliest) for token in range(len(values))]
            return Row(single, single)
        tempered = torch.softmax(logits.double() / sampling.temperature, dim=-1)
        if sampling.mode in TYPICAL:
            kept = self.typical(tempered, sampling)
        else:
            kept = self.nucleus(tempered, sampling.top_p)
        return Row(tempered.tolist(), self.renormalised(tempered * kept).tolist())

    def nucleus(self, tempered: Tensor, top_p: float) -> Tensor:
        """Tokens before which there is no more than `top_p`; of equal ones the lower id first."""
        order = torch.sort(tempered, descending=True, stable=True)
        before = order.values.cumsum(-1) - order.values
        kept = torch.zeros_like(tempered, dtype=torch.bool)
        kept[order.indices] = before <= top_p
        return kept

    def typical(self, tempered: Tensor, sampling: Sampling) -> Tensor:
        """Tokens at the threshold or above it, and the likeliest in any case."""
        kept = tempered >= self.threshold(tempered.tolist(), sampling)
        kept[tempered.argmax()] = True
        return kept

    def threshold(self, tempered: Weights, sampling: Sampling) -> float:
        """The typical threshold of a row, as the posterior has it (P4)."""
        entropy = -sum(p * log(p + sampling.entropy_guard) for p in tempered if p > 0)
        return min(sampling.epsilon, sampling.alpha * exp(-entropy))

    def renormalised(self, cut: Tensor) -> Tensor:
        """A row of which something was cut off, as probabilities again."""
        return cut / cut.sum()


def leaves(paths: Sequence[RankPath]) -> list[RankPath]:
    """The paths that no other goes on from, in canonical order."""
    inner = {path[:-1] for path in paths}
    return [path for path in paths if path not in inner]
