"""Between the judge and an engine: copies of what is given, and copies of what is answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from medusa_conformance.incident import Incident
from medusa_spec.errors import Refused, Unsupported
from medusa_spec.stages import STAGES, answer_of


class Missing(Exception):
    """The engine does not have the stage that was asked for."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        super().__init__(f"the engine has no {stage}")


@dataclass(slots=True)
class Record:
    """How often each stage was asked, what it said it was not made for, and what went wrong."""

    present: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)
    unsupported: dict[str, Counter[str]] = field(default_factory=dict)

    def decline(self, stage: str, reason: Unsupported | Refused) -> None:
        """Take down what a stage was not made for; `start` where no engine was to be had."""
        self.unsupported.setdefault(stage, Counter())[str(reason)] += 1

    def add(self, other: Record) -> None:
        """Take in what another process recorded."""
        self.present |= other.present
        self.calls += other.calls
        for stage, reasons in other.unsupported.items():
            self.unsupported[stage] = self.unsupported.get(stage, Counter()) + reasons


class Isolated:
    """An engine that shares no memory with its judge, and whose answers have their own forms.

    An engine may edit its arguments, or answer with a view of a buffer that it writes to later.
    Neither may change what was recorded: it would then be judged by its own corruption.
    `Missing` where a stage is not there, `Incident` where it gives no answer.
    """

    def __init__(self, engine: Any, record: Record | None = None) -> None:
        self._engine = engine
        # An engine that is `apart` was sent what it is given, and its answers were read.
        self._copy = _same if getattr(engine, "apart", None) is True else deepcopy
        self.record = Record() if record is None else record
        self.record.present |= {name for name in STAGES if self.has(name)}

    def has(self, *stages: str) -> bool:
        """Whether the engine has every one of `stages`."""
        return all(callable(getattr(self._engine, stage, None)) for stage in stages)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in STAGES:
            raise AttributeError(name)
        if not self.has(name):
            raise Missing(name)
        stage, record, copy = getattr(self._engine, name), self.record, self._copy

        def call(*given: Any) -> Any:
            record.calls[name] += 1
            try:
                return answer_of(STAGES[name].answer, copy(stage(*copy(given))))
            except (Refused, Incident):
                raise
            except Unsupported as reason:
                record.decline(name, reason)
                raise
            except (Exception, SystemExit) as error:
                raise Incident("crash", name, f"{type(error).__name__}: {error}") from error

        return call


def _same(value: Any) -> Any:
    return value
