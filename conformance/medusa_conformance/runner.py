"""The one runner: coordinates through the line, traces through the oracles, results counted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import medusa_manifests
from medusa_conformance.isolation import Record
from medusa_conformance.line import Crash, Factory, Line
from medusa_conformance.pool import pool
from medusa_oracles import judge
from medusa_spec.arrays import DType
from medusa_spec.coordinate import Coordinate
from medusa_spec.findings import Finding, Verdict
from medusa_spec.registry import AROUND, CONTRACTS, SIGHTS, Sight, invariants
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_mutations import Mutation

Device: TypeAlias = Literal["cpu", "cuda"]
Status: TypeAlias = Literal["killed", "survived", "incompetent"]

PATIENCE = 4
"""Coordinates that a killed mutant is still shown in the hope of a shallower sight of it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is run with; small and plain, so that it travels to worker processes."""

    device: Device
    dtype: DType
    contracts: tuple[str, ...] = CONTRACTS

    def __post_init__(self) -> None:
        for contract in self.contracts:
            if contract not in CONTRACTS:
                raise ValueError(f"{contract!r} is no contract; there are {', '.join(CONTRACTS)}")


@dataclass(frozen=True, slots=True)
class Located:
    """A finding, with the coordinate that replays it and the round in which it arose."""

    finding: Finding
    coordinate: Coordinate
    generation: int
    round: int
    file: Path | None = None
    """The trace file that it was found in, where it was."""


@dataclass(slots=True)
class Tally:
    """What was judged: coordinates, and per invariant those that exercised and that broke it.

    Of each invariant and coordinate the first finding is kept. `seen` are the names that any trace
    held, `record` what the engine was asked for.
    """

    coordinates: int = 0
    executed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    findings: list[Located] = field(default_factory=list)
    crashes: list[tuple[str, Crash]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    record: Record = field(default_factory=Record)

    def add(self, other: Tally) -> None:
        """Take in what another process judged."""
        self.coordinates += other.coordinates
        self.executed += other.executed
        self.failed += other.failed
        self.findings += other.findings
        self.crashes += other.crashes
        self.seen |= other.seen
        self.record.add(other.record)


@dataclass(frozen=True, slots=True)
class MutantResult:
    """How a mutant fared. `examples` counts coordinates up to the killing one, all if none did.

    `fired` are the codes found, in registry order; `depth` is the shallowest sight among them.
    """

    mutation_id: str
    status: Status
    fired: tuple[str, ...]
    depth: Sight | None
    examples: int
    crash: str | None


@dataclass(frozen=True, slots=True)
class Verification:
    """The main job's result."""

    setting: Setting
    seed: int
    tally: Tally
    mutants: tuple[MutantResult, ...]
    seconds: float

    @property
    def planned(self) -> tuple[str, ...]:
        """Codes of the chosen contracts."""
        return tuple(c for c, i in invariants().items() if i.contract in self.setting.contracts)

    @property
    def verdict(self) -> Verdict:
        """Fail by a finding, a crash or a mutant at large; inconclusive by an idle rule or none."""
        at_large = any(result.status != "killed" for result in self.mutants)
        if self.tally.failed or self.tally.crashes or at_large:
            return Verdict.FAIL
        if not self.planned or any(not self.tally.executed[code] for code in self.planned):
            return Verdict.INCONCLUSIVE
        return Verdict.PASS


def judge_coordinates(
    factory: Factory, coordinates: Iterable[Coordinate], setting: Setting
) -> Tally:
    """Judge one engine on every coordinate."""
    tally = Tally()
    contracts = frozenset(setting.contracts)
    for coordinate in coordinates:
        judge_line(line_of(factory, coordinate, setting), contracts, tally)
    return tally


def judge_line(line: Line, contracts: frozenset[str], tally: Tally) -> None:
    """One coordinate's traces through the oracles, and what came of it into the tally."""
    judge_traces(line.run(contracts), line.coordinate, contracts, tally)
    tally.record.add(line.record)


def judge_traces(
    traces: Iterable[Trace | Crash],
    coordinate: Coordinate,
    contracts: frozenset[str],
    tally: Tally,
    file: Path | None = None,
) -> None:
    """All traces of one coordinate through the oracles; `file` is what they were read from."""
    executed: set[str] = set()
    failed: set[str] = set()
    for seen in traces:
        if isinstance(seen, Crash):
            tally.crashes.append((coordinate.name, seen))
            continue
        tally.seen.update(seen.arrays, seen.documents)
        judgement = judge(seen, contracts)
        executed.update(judgement.executed)
        for finding in judgement.findings or refused_unasked(seen):
            if finding.code not in failed:
                located = Located(finding, coordinate, seen.generation, seen.round, file)
                tally.findings.append(located)
            failed.add(finding.code)
    tally.coordinates += 1
    tally.executed.update(executed)
    tally.failed.update(failed)


def first_finding(line: Line, code: str) -> Located | None:
    """The first breach of one rule on a line, of which no more is run; `None` where it holds."""
    contract = frozenset({invariants()[code].contract})
    for seen in line.run(contract):
        if not isinstance(seen, Trace):
            continue
        for finding in judge(seen, contract).findings:
            if finding.code == code:
                return Located(finding, line.coordinate, seen.generation, seen.round)
    return None


def refused_unasked(seen: Trace) -> tuple[Finding, ...]:
    """A lawful round that was refused, whatever the contracts: it left theirs nothing to judge."""
    if seen.documents.get("round.refused") is None:
        return ()
    return judge(seen, frozenset({"round"})).findings


def line_of(factory: Factory, coordinate: Coordinate, setting: Setting) -> Line:
    """The line of one coordinate, with the tolerances of the run's dtype."""
    within = medusa_manifests.tolerances(setting.dtype)
    return Line(coordinate, factory, *within, dtype=setting.dtype)


def mutations() -> Mapping[str, Mutation]:
    """The catalog. It brings torch with it, which judging somebody's engine does without."""
    from medusa_mutations import mutations as catalog

    return catalog()


def showing(contract: str) -> tuple[str, ...]:
    """The contracts from which a mutant of one is looked at: of decoding, from every such one."""
    decoding = tuple(other for other in CONTRACTS if other not in AROUND)
    return (contract,) if contract in AROUND else decoding


def judge_mutant(
    mutation: Mutation, coordinates: Sequence[Coordinate], setting: Setting
) -> MutantResult:
    """Show a mutant coordinates until its killer has fired, and a few more for its depth."""
    factory = reference_factory(setting, mutation)
    everything = replace(setting, contracts=showing(mutation.contract))
    fired: set[str] = set()
    killed_by = 0
    for number, coordinate in enumerate(coordinates, 1):
        tally = judge_coordinates(factory, [coordinate], everything)
        fired |= tally.failed.keys()
        if tally.crashes:
            name, crash = tally.crashes[0]
            text = f"{crash.error} in {crash.section} on {name}"
            return _result(mutation, "incompetent", fired, number, text)
        if not killed_by and mutation.killer in fired:
            killed_by = number
        if killed_by and (number >= killed_by + PATIENCE or _depth(fired) == SIGHTS[0]):
            break
    if killed_by:
        return _result(mutation, "killed", fired, killed_by, None)
    return _result(mutation, "survived", fired, len(coordinates), None)


def _result(
    mutation: Mutation, status: Status, fired: set[str], examples: int, crash: str | None
) -> MutantResult:
    ordered = tuple(code for code in invariants() if code in fired)
    return MutantResult(mutation.id, status, ordered, _depth(fired), examples, crash)


def _depth(fired: Iterable[str]) -> Sight | None:
    sights = [invariants()[code].sight for code in fired]
    return min(sights, key=SIGHTS.index, default=None)


def reference_factory(setting: Setting, mutation: Mutation | None = None) -> Factory:
    """Makes reference engines, or engines with one stage replaced by a mutation's."""
    from medusa_reference_engine import ReferenceEngine

    stages = None if mutation is None else mutation.stages()

    def make(coordinate: Coordinate, capacity: int) -> Any:
        return ReferenceEngine.seeded(
            coordinate.model,
            coordinate.heads,
            capacity,
            dtype=setting.dtype,
            device=setting.device,
            stages=stages,
        )

    return make


def frozen_coordinates() -> list[Coordinate]:
    """The manifests. Small ones cost least; what the engine decides itself shows most.

    Those that were made for what stands around decoding show least of it.
    """
    loaded = [medusa_manifests.load(name) for name in medusa_manifests.names()]

    def late(c: Coordinate) -> tuple[bool, bool, bool, str]:
        around = any(part is not None for part in (c.search, c.exactness, c.training, c.release))
        return not is_small(c), around, c.ranking is not None, c.name

    return sorted(loaded, key=late)


def is_small(coordinate: Coordinate) -> bool:
    """Whether mutants are shown a frozen coordinate; each of the others costs several of these."""
    rows = coordinate.nodes <= 32 and coordinate.capacity <= 128
    return rows and coordinate.model.vocabulary <= 1024


def random_coordinates(count: int, seed: int) -> list[Coordinate]:
    """`count` coordinates drawn from the public strategies, the same for the same seed."""
    from hypothesis import configuration

    from medusa_conformance.strategies import coordinates, sample

    # Hypothesis keeps what it finds in sources where it was begun: in somebody's folder.
    home = vars(configuration).get("__hypothesis_home_directory")
    with TemporaryDirectory(prefix="medusa-") as folder:
        configuration.set_hypothesis_home_dir(folder)
        try:
            return sample(coordinates(), count, seed)
        finally:
            configuration.set_hypothesis_home_dir(home)


CHUNK = 10
"""Coordinates that a worker judges at a time."""

MUTANT_EXAMPLES = 60
"""Random coordinates that a mutant is shown at most, behind the small frozen ones."""


def verify(
    setting: Setting,
    seed: int,
    max_examples: int,
    workers: int,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Verification:
    """The main job: the reference engine on all coordinates, then every mutant of the contracts.

    `progress` is told what is going on, how much of it is done, and how much there is.
    """
    started = time.perf_counter()
    frozen, drawn = frozen_coordinates(), random_coordinates(max_examples, seed)
    small = [coordinate for coordinate in frozen if is_small(coordinate)]
    chosen = [m.id for m in mutations().values() if m.contract in setting.contracts]
    everything = [*frozen, *drawn]
    chunks = [everything[start : start + CHUNK] for start in range(0, len(everything), CHUNK)]
    plan = _Plan(setting, (*small, *drawn[:MUTANT_EXAMPLES]))
    with pool(workers, _begin, plan) as executor:
        # Mutants first: they are the longer half, and the short chunks fill the end evenly.
        hunts = [executor.submit(_hunt, name) for name in chosen]
        rounds = [executor.submit(_rounds, chunk) for chunk in chunks]
        what = dict(zip(hunts, chosen, strict=True))
        pending: list[Future[Any]] = [*hunts, *rounds]
        for done, future in enumerate(as_completed(pending), 1):
            progress(what.get(future, "reference engine"), done, len(pending))
    tally = Tally()
    for judged in rounds:
        tally.add(judged.result())
    results = tuple(hunt.result() for hunt in hunts)
    return Verification(setting, seed, tally, results, time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What every worker knows of the run; `shown` is what mutants are shown, in this order."""

    setting: Setting
    shown: tuple[Coordinate, ...]


_plan: _Plan | None = None


def _begin(plan: _Plan) -> None:
    import torch

    global _plan
    _plan = plan
    # A worker is one process; threads of its own would only fight the other workers'.
    torch.set_num_threads(1)


def _known() -> _Plan:
    if _plan is None:
        raise RuntimeError("a worker was not given its plan")
    return _plan


def _hunt(name: str) -> MutantResult:
    plan = _known()
    return judge_mutant(mutations()[name], plan.shown, plan.setting)


def _rounds(coordinates: list[Coordinate]) -> Tally:
    setting = _known().setting
    return judge_coordinates(reference_factory(setting), coordinates, setting)
