"""The engine that stands beside all others of a line: it gives plain passes, and never decodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from medusa_conformance.incident import Incident
from medusa_conformance.translation import Engine
from medusa_spec.stages import Forward


class PlainEngine:
    """Plain passes of one coordinate's engine, each asked for once.

    It has no past: an engine that has decoded might answer from its session's cache.
    """

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make = make
        self._engine = make()
        self._passes: dict[tuple[int, ...], Forward] = {}

    def has(self) -> bool:
        """Whether the engine gives plain passes at all."""
        return self._engine.has("forward")

    def forward(self, tokens: Sequence[int]) -> Forward:
        """A causal pass over the tokens; `Missing` or `Incident` as of any engine."""
        given = tuple(map(int, tokens))
        if given not in self._passes:
            self._passes[given] = self._asked(given)
        return self._passes[given]

    def _asked(self, tokens: tuple[int, ...]) -> Forward:
        try:
            found: Forward = self._engine.forward(tokens)
        except Incident as incident:
            if incident.asked:
                raise
            # Its process has ended since, over something else.
            self._engine = self._make()
            found = self._engine.forward(tokens)
        return found
