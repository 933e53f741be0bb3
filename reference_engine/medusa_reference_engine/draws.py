"""Two kinds of chance: every outcome with its weight, or one that is drawn with a seed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeAlias, TypeVar

import torch

Probabilities: TypeAlias = Sequence[float]

Draw: TypeAlias = Callable[[Probabilities], int]
"""Gives an index, each with its probability: all that a sampling round knows of chance."""

BLOCK = 256
"""Uniform numbers that are drawn at a time."""

Result = TypeVar("Result", bound=Hashable)


def outcomes(program: Callable[[Draw], Result]) -> dict[Result, float]:
    """Every result of a program that draws, with its probability.

    The program runs once for each sequence of draws that is possible.
    """
    found: dict[Result, float] = {}
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        given = waiting.pop()
        made: list[int] = []
        weights: list[float] = []

        def draw(probabilities: Probabilities) -> int:
            # The loop ends with the program's run, so each run has lists of its own.
            if len(made) < len(given):  # noqa: B023
                choice = given[len(made)]  # noqa: B023
            else:
                choice, *others = [i for i, p in enumerate(probabilities) if p > 0]
                waiting.extend((*made, other) for other in others)  # noqa: B023
            made.append(choice)  # noqa: B023
            weights.append(probabilities[choice])  # noqa: B023
            return choice

        result = program(draw)
        weight = 1.0
        for factor in weights:
            weight *= factor
        found[result] = found.get(result, 0.0) + weight
    return found


class Seeded:
    """Draws by a generator of their own."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._uniforms: Iterator[float] = iter(())

    def uniform(self) -> float:
        """A number of [0, 1)."""
        for number in self._uniforms:
            return number
        block = torch.rand(BLOCK, generator=self._generator, dtype=torch.float64)
        self._uniforms = iter(block.tolist())
        return next(self._uniforms)

    def __call__(self, probabilities: Probabilities) -> int:
        """An index, by one uniform number."""
        left = self.uniform()
        for index, probability in enumerate(probabilities):
            left -= probability
            if left < 0:
                return index
        # Rounding may leave a little over; what is impossible is not drawn for it.
        return max(index for index, p in enumerate(probabilities) if p > 0)
