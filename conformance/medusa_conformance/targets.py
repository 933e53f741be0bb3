"""What `check` judges: an engine in a process of its own, as far as that goes on answering."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from medusa_conformance.engine_name import misnamed
from medusa_conformance.incident import Incident
from medusa_conformance.remote import Description, Remote, RemoteEngine
from medusa_spec.coordinate import Coordinate
from medusa_spec.dialect import Dialect, dialect_from
from medusa_spec.errors import InputError

TRIES = 2
"""Ends of its process that a stage may cause before it is not asked again.

Each costs a start, or the whole time limit.
"""

BEFORE = ("capabilities", "stop")
"""What comes before a stage without being one: where these end the process, nothing is asked."""

OURS = (
    "medusa_spec",
    "medusa_oracles",
    "medusa_manifests",
    "medusa_mutations",
    "medusa_reference_engine",
    "medusa_conformance",
)
"""The packages of this project, of which an adapter may import any."""


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
        rule = misnamed(text, folder)
        if rule is not None:
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
    found = [spec.origin for spec in map(find_spec, OURS) if spec is not None]
    roots = dict.fromkeys(str(Path(origin).parents[1]) for origin in found if origin is not None)
    theirs = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([*roots, *([theirs] if theirs else [])])
    # Each worker has such a process of its own; threads of one would only fight the others'.
    calm = {"OMP_NUM_THREADS": "1", **os.environ}
    # What is compiled is known by the second and the size of its source alone: a module that was
    # mended at once would be judged, and replayed, as it was before.
    return {**calm, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True, slots=True)
class Described:
    """What an engine's process says of itself, read; small, so that it travels."""

    description: Description
    dialect: Dialect

    @classmethod
    def of(cls, remote: Remote) -> Described:
        """Asked of the process itself: `Incident` or `InputError` where it does not say."""
        said = remote.describe()
        return cls(said, dialect_from(said.dialect, "dialect"))


class Guarded:
    """A factory of remote engines that stops asking for what ends their process every time."""

    def __init__(self, remote: Remote, described: Described) -> None:
        self._remote = remote
        self._ends: defaultdict[str, list[Incident]] = defaultdict(list)
        self.stages = described.description.stages
        self.dialect = described.dialect

    def __call__(self, coordinate: Coordinate, capacity: int) -> Any:
        """A fresh engine; `Incident` where none can be had any more."""
        self._given_up("start")
        try:
            engine = self._remote.engine(coordinate, capacity)
        except Incident as incident:
            self._count(incident)
            raise
        for begun in ("capabilities", "start"):
            self._ends[begun].clear()
        return _Watched(engine, self)

    def ask(self, engine: RemoteEngine, stage: str, given: tuple[Any, ...]) -> Any:
        """A stage's answer; `Incident`, at once where it has ended its process too often."""
        self._given_up(stage)
        try:
            return getattr(engine, stage)(*given)
        except Incident as incident:
            self._count(incident)
            raise

    def _given_up(self, stage: str) -> None:
        for blamed in (stage, *BEFORE):
            if len(self._ends[blamed]) >= TRIES:
                last = self._ends[blamed][-1]
                raise Incident(last.kind, last.stage, last.text, asked=False)

    def _count(self, incident: Incident) -> None:
        # By the incident's own stage, which need not be the one that was to be asked. A crash is an
        # answer: the process lives, and the next one may be better.
        if incident.asked and incident.kind != "crash":
            self._ends[incident.stage].append(incident)


class _Watched:
    """A remote engine whose stages go through its guard."""

    apart = True

    def __init__(self, engine: RemoteEngine, guard: Guarded) -> None:
        self._engine = engine
        self._guard = guard

    def __getattr__(self, stage: str) -> Any:
        if stage not in self._guard.stages:
            raise AttributeError(stage)
        return lambda *given: self._guard.ask(self._engine, stage, given)
