"""Judging somebody else's engine: coordinates to its process, traces to the oracles, a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import medusa_manifests
from medusa_conformance.folding import Cause
from medusa_conformance.incident import Incident
from medusa_conformance.line import Crash, Line
from medusa_conformance.pool import pool
from medusa_conformance.remote import Description, Remote
from medusa_conformance.runner import (
    Located,
    Setting,
    Tally,
    first_finding,
    frozen_coordinates,
    judge_line,
    judge_traces,
    random_coordinates,
)
from medusa_conformance.shrink import shrink_all
from medusa_conformance.targets import Described, Guarded, Target
from medusa_conformance.translation import fixed_policy
from medusa_spec.coordinate import Coordinate
from medusa_spec.dialect import CANONICAL, Dialect
from medusa_spec.errors import InputError
from medusa_spec.tracefile import TraceFile, read_trace, trace_files

CHUNK = 4
"""Coordinates that a worker judges at a time."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An engine or its traces, what it says of itself, and what its coordinates showed.

    `text` is the target as it was given, `target` what a finding file keeps of it.
    """

    text: str
    target: Mapping[str, Any]
    description: Description
    dialect: Dialect
    contracts: tuple[str, ...]
    tally: Tally

    @property
    def setting(self) -> Setting:
        """What a finding was found with; where an engine computes is its own business."""
        return Setting("cpu", self.dialect.dtype, self.contracts)


def line_for(guard: Guarded, coordinate: Coordinate) -> Line:
    """One coordinate of a remote engine, under the tolerances and the policy that it declares."""
    dialect = guard.dialect
    tolerances = medusa_manifests.tolerances(dialect.dtype)
    planned = fixed_policy(coordinate, dialect)
    return Line(planned, guard, *tolerances, dialect=dialect, dtype=dialect.dtype)


def check(
    target: Target,
    contracts: tuple[str, ...],
    seed: int,
    max_examples: int,
    workers: int,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Judged:
    """Judge a target on the frozen coordinates and `max_examples` drawn ones.

    `InputError` where there is no engine to be had, or its dialect cannot be read.
    """
    with pool(workers, _begin, _Worker(target, frozenset(contracts))) as executor:
        # In every worker at once, since an engine's imports take seconds; one answer is enough.
        asked = [executor.submit(_describe) for _ in range(workers)]
        # Drawn meanwhile, which takes seconds too.
        coordinates = [*frozen_coordinates(), *random_coordinates(max_examples, seed)]
        try:
            described = asked[0].result()
        except Incident as incident:
            return _speechless(target, contracts, incident)
        description, dialect = described.description, described.dialect
        starts = range(0, len(coordinates), CHUNK)
        chunks = [coordinates[start : start + CHUNK] for start in starts]
        pending = [executor.submit(_judge, described, chunk) for chunk in chunks]
        for done, _ in enumerate(as_completed(pending), 1):
            progress(description.name, done, len(pending))
    tally = Tally()
    for judged in pending:
        tally.add(judged.result())
    return Judged(target.text, target.document(), description, dialect, contracts, tally)


def _speechless(target: Target, contracts: tuple[str, ...], incident: Incident) -> Judged:
    """What is left to say of an engine that never said what it is."""
    crash = Crash("capabilities", incident.kind, incident.stage, incident.text)
    tally = Tally(crashes=[("every coordinate", crash)])
    description = Description(target.text, None, "unknown", frozenset(), {}, "list")
    return Judged(target.text, target.document(), description, CANONICAL, contracts, tally)


@dataclass(slots=True)
class _Worker:
    """What a worker process judges; its engine's process lives as long as it does."""

    target: Target
    contracts: frozenset[str]
    remote: Remote | None = None
    guard: Guarded | None = None


_worker: _Worker | None = None


def _begin(worker: _Worker) -> None:
    global _worker
    _worker = worker


def _told() -> tuple[_Worker, Remote]:
    if _worker is None:
        raise RuntimeError("a worker was not told what it judges")
    if _worker.remote is None:
        _worker.remote = _worker.target.remote()
    return _worker, _worker.remote


def _describe() -> Described:
    return Described.of(_told()[1])


def _judge(described: Described, coordinates: Sequence[Coordinate]) -> Tally:
    worker, remote = _told()
    if worker.guard is None:
        worker.guard = Guarded(remote, described)
    tally = Tally()
    for coordinate in coordinates:
        judge_line(line_for(worker.guard, coordinate), worker.contracts, tally)
    return tally


def check_traces(path: Path, contracts: tuple[str, ...]) -> Judged:
    """Judge a trace file, or all of a folder's: each by itself, for what it holds.

    `InputError` for a file that cannot be used, and for files of different dtypes or dialects.
    """
    files = trace_files(path)
    tally = Tally()
    first: TraceFile | None = None
    for file in files:
        found = read_trace(file)
        first = first or found
        for name in ("dtype", "dialect"):
            if getattr(found, name) != getattr(first, name):
                rule = f"is another than that of {first.path.name}; judge such files apart"
                raise InputError(str(file), f"header.{name}", rule)
        trace = found.trace(*medusa_manifests.tolerances(found.dtype))
        judge_traces([trace], found.coordinate, frozenset(contracts), tally, file)
    assert first is not None
    engine = first.engine or {}
    description = Description(
        name=engine.get("name", path.resolve().name),
        version=engine.get("version"),
        language="unknown",
        stages=frozenset(),
        dialect=first.dialect.document(),
        arrays="base64",
    )
    target = {"kind": "trace", "path": str(path.resolve())}
    return Judged(str(path), target, description, first.dialect, contracts, tally)


def judge_one(target: Target, coordinate: Coordinate, contracts: frozenset[str]) -> Tally:
    """Judge a target on one coordinate, in a process that is gone afterwards.

    `Incident` where its process does not even say what it is.
    """
    tally = Tally()
    with target.remote() as remote:
        guard = Guarded(remote, Described.of(remote))
        judge_line(line_for(guard, coordinate), contracts, tally)
    return tally


def shrunken(target: Target, causes: Sequence[Cause]) -> list[Cause]:
    """Each cause on the smallest coordinate that was found for it, if a second run shows it too."""
    with target.remote() as remote:
        try:
            guard = Guarded(remote, Described.of(remote))
        except (Incident, InputError):
            # It was there before; what it showed then stands.
            return list(causes)

        def judge_for(code: str) -> Callable[[Coordinate], Located | None]:
            return lambda coordinate: first_finding(line_for(guard, coordinate), code)

        return shrink_all(causes, judge_for)
