"""What `check` judges: an engine in a process of its own, as far as that goes on answering."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import medusa_conformance
import medusa_manifests
import medusa_spec
from medusa_conformance.incident import Incident
from medusa_conformance.remote import Description, Remote, RemoteEngine
from medusa_spec.coordinate import Coordinate
from medusa_spec.dialect import Dialect, dialect_from
from medusa_spec.errors import InputError

TRIES = 2
"""Ends of its process that a stage may cause before it is not asked again.

Each costs a start, or the whole time limit.
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A module's attribute, or a command that speaks the line protocol; small, so that it travels.

    `folder` is where it runs; `timeout` is in seconds, for each request.
    """

    kind: Literal["module", "command"]
    argv: tuple[str, ...]
    folder: Path
    timeout: float

    @classmethod
    def module(cls, text: str, folder: Path, timeout: float) -> Target:
        """`module:attribute`, served by this Python."""
        if not all(text.partition(":")[::2]):
            rule = "is neither module:attribute nor a trace file or folder"
            raise InputError(text, "", rule)
        return cls("module", (text,), folder, timeout)

    @property
    def text(self) -> str:
        """The target as it was given."""
        return " ".join(self.argv)

    def document(self) -> dict[str, Any]:
        """What a finding file keeps of it."""
        place = {"kind": self.kind, "folder": str(self.folder)}
        if self.kind == "module":
            return {**place, "text": self.text}
        return {**place, "argv": list(self.argv)}

    def remote(self) -> Remote:
        """Its process, not yet begun."""
        if self.kind == "command":
            return Remote(self.argv, self.folder, self.timeout)
        served = (sys.executable, "-m", "medusa_conformance.serve", *self.argv)
        return Remote(served, self.folder, self.timeout, _with_ours())


def _with_ours() -> Mapping[str, str]:
    # Of a checkout that is not installed, the process must find what this one found.
    ours = (medusa_spec, medusa_manifests, medusa_conformance)
    roots = dict.fromkeys(str(Path(str(m.__file__)).parents[1]) for m in ours)
    theirs = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*roots, *([theirs] if theirs else [])])}


class Guarded:
    """A factory of remote engines that stops asking for what ends their process every time."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._ends: Counter[str] = Counter()
        self.description: Description = remote.describe()
        self.dialect: Dialect = dialect_from(self.description.dialect, "dialect")

    def __call__(self, coordinate: Coordinate, capacity: int) -> Any:
        """A fresh engine; `Incident` where none can be had any more."""
        self._given_up("start")
        try:
            engine = self._remote.engine(coordinate, capacity)
        except Incident as incident:
            self._count("start", incident)
            raise
        self._ends["start"] = 0
        return _Watched(engine, self)

    def ask(self, engine: RemoteEngine, stage: str, given: tuple[Any, ...]) -> Any:
        """A stage's answer; `Incident`, at once where it has ended its process too often."""
        self._given_up(stage)
        try:
            return getattr(engine, stage)(*given)
        except Incident as incident:
            self._count(stage, incident)
            raise

    def _given_up(self, stage: str) -> None:
        if self._ends[stage] >= TRIES:
            raise Incident("exit", stage, f"not asked again: it ended its process {TRIES} times")

    def _count(self, stage: str, incident: Incident) -> None:
        # A crash is an answer: the process lives, and the next one may be better.
        self._ends[stage] += incident.kind != "crash"


class _Watched:
    """A remote engine whose stages go through its guard."""

    def __init__(self, engine: RemoteEngine, guard: Guarded) -> None:
        self._engine = engine
        self._guard = guard

    def __getattr__(self, stage: str) -> Any:
        if stage not in self._guard.description.stages:
            raise AttributeError(stage)
        return lambda *given: self._guard.ask(self._engine, stage, given)
