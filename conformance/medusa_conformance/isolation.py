"""Between the judge and an engine: copies of what is given, and copies of what is answered."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any


class Isolated:
    """An engine that shares no memory with its judge.

    An engine may edit its arguments, or answer with a view of a buffer that it writes to later.
    Neither may change what was recorded: it would then be judged by its own corruption.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Callable[..., Any]:
        stage = getattr(self._engine, name)

        def call(*given: Any) -> Any:
            return deepcopy(stage(*deepcopy(given)))

        return call
