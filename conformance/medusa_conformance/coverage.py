"""Clause, invariant, oracle, engine, mutant, coordinate, section: what belongs to what, and gaps.

Everything is read from the project's own data, so a new contract is in it once it is registered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import medusa_manifests
from medusa_mutations import Mutation, mutations
from medusa_mutations.catalog import STAGES
from medusa_oracles import oracles
from medusa_spec.documents import read_text
from medusa_spec.registry import CONTRACTS, Invariant, invariants
from medusa_spec.sections import Section, consecutive, sections

_CLAUSE = re.compile(r"\*\*([A-Z]\d+) `([A-Z]+\.[A-Z0-9_]+)`\*\* \((0x[0-9A-F]{2}[A-Z]?)\)\. ")
_BROKEN = "*Broken:* "
_SECTION = re.compile(r"\b0x[0-9A-F]{2}[A-Z]?\b")


@dataclass(frozen=True, slots=True)
class Clause:
    """A rule as its chapter says it; `broken` is what goes wrong for whoever breaks it."""

    contract: str
    number: str
    code: str
    section: str
    broken: str


@dataclass(frozen=True, slots=True)
class Place:
    """A name in a file, which is given from the root of the checkout."""

    file: str
    name: str


@dataclass(frozen=True, slots=True)
class House:
    """All there is to be held against each other.

    `oracles` are by code, `stages` by contract, and `manifests` by name, each with the sections
    that it speaks of. `files` are those below the root that somebody has to have.
    """

    contracts: tuple[str, ...]
    invariants: Mapping[str, Invariant]
    clauses: tuple[Clause, ...]
    oracles: Mapping[str, Place]
    stages: Mapping[str, Place]
    mutants: Mapping[str, Mutation]
    manifests: Mapping[str, frozenset[str]]
    sections: tuple[Section, ...]
    files: frozenset[str]

    def mutants_of(self, code: str) -> list[Mutation]:
        """Those that an invariant must kill, in the order of the catalog."""
        return [mutant for mutant in self.mutants.values() if mutant.killer == code]

    def clause_of(self, code: str) -> Clause | None:
        """The clause that says an invariant."""
        return next((clause for clause in self.clauses if clause.code == code), None)

    def naming(self, section: str) -> set[str]:
        """The invariants that name a section, or kill a mutant that does."""
        killers = {m.killer for m in self.mutants.values() if m.section == section}
        return killers | {i.code for i in self.invariants.values() if i.section == section}

    def codes_of(self, section: Section) -> list[str]:
        """The invariants that say what a section demands, in the order of the registry."""
        found = self.naming(section.id) | {*section.codes}
        return [code for code in self.invariants if code in found]


def read_house(root: Path) -> House:
    """The checkout at `root`; chapters and tests are no part of an installed package."""
    stages = {contract: place(stage, stage.__name__) for stage, contract in STAGES.items()}
    manifests = {
        name: frozenset(_SECTION.findall(read_text(medusa_manifests.path(name))))
        for name in medusa_manifests.names()
    }
    wanted = {file for contract in CONTRACTS for file in house_files(contract)}
    wanted |= {file for section in sections() for file in section.files}
    return House(
        contracts=CONTRACTS,
        invariants=invariants(),
        clauses=tuple(clause for contract in CONTRACTS for clause in read_clauses(root, contract)),
        oracles={code: oracle_place(entry.check) for code, entry in oracles().items()},
        stages=stages,
        mutants=mutations(),
        manifests=manifests,
        sections=sections(),
        files=frozenset(file for file in wanted if (root / file).exists()),
    )


def house_files(contract: str) -> tuple[str, ...]:
    """What each contract has under its own name, from the root of the checkout."""
    return (
        f"spec/{contract}.md",
        f"oracles/medusa_oracles/{contract}.py",
        f"reference_engine/medusa_reference_engine/{contract}.py",
        f"mutations/medusa_mutations/{contract}.py",
        f"tests/{contract}",
    )


def read_clauses(root: Path, contract: str) -> Iterator[Clause]:
    """The clauses of a chapter, in its order; none where there is no chapter."""
    chapter = root / "spec" / f"{contract}.md"
    for paragraph in read_text(chapter).split("\n\n") if chapter.exists() else ():
        head = _CLAUSE.match(paragraph)
        if head:
            _, _, broken = paragraph.partition(_BROKEN)
            number, code, section = head.groups()
            yield Clause(contract, number, code, section, " ".join(broken.split()))


def oracle_place(check: Any) -> Place:
    """Where an oracle stands; one that a function makes is known by that function."""
    return place(check, check.__qualname__.partition(".<locals>")[0])


def place(thing: Any, name: str) -> Place:
    """`name`, in the file of the module that defines `thing`."""
    package, _, module = thing.__module__.partition(".")
    folder = package.removeprefix("medusa_")
    return Place(f"{folder}/{package}/{module.replace('.', '/')}.py", name)


def overridden(mutant: Mutation) -> list[str]:
    """The engine's methods that a mutant has of its own, as `TreeStage.visible`."""
    line = mutant.stage.__mro__
    base = next(parent for parent in line if parent in STAGES)
    own = [name for parent in line[: line.index(base)] for name in vars(parent)]
    kept = [name for name in dict.fromkeys(own) if not name.startswith("__")]
    return [f"{base.__name__}.{name}" for name in kept if hasattr(base, name)]


def gaps(house: House) -> Iterator[str]:
    """What has no counterpart, each in a line that names it and what is missing."""
    yield from _contract_gaps(house)
    yield from _invariant_gaps(house)
    yield from _mutant_gaps(house)
    yield from _section_gaps(house)


def _contract_gaps(house: House) -> Iterator[str]:
    for contract in house.contracts:
        for file in house_files(contract):
            if file not in house.files:
                yield f"{contract}: there is no {file}"
        if contract not in house.stages:
            yield f"{contract}: no stage of the engine does it"
        if not any(i.contract == contract for i in house.invariants.values()):
            yield f"{contract}: no invariant is of it"


def _invariant_gaps(house: House) -> Iterator[str]:
    for code, invariant in house.invariants.items():
        clause = house.clause_of(code)
        registered = (invariant.contract, invariant.clause, invariant.section)
        if clause is None:
            yield f"{code}: {invariant.chapter} has no clause of it"
        elif registered != (clause.contract, clause.number, clause.section):
            yield f"{code}: its clause and the registry differ in contract, number or section"
        elif not clause.broken:
            yield f"{code}: its clause does not say what goes wrong where it is broken"
        if invariant.contract not in house.contracts:
            yield f"{code}: {invariant.contract} is no contract"
        if code not in house.oracles:
            yield f"{code}: no oracle judges it"
        if not house.mutants_of(code):
            yield f"{code}: no mutant breaks it"
    for clause in house.clauses:
        if clause.code not in house.invariants:
            said = f"clause {clause.number} of spec/{clause.contract}.md"
            yield f"{clause.code}: {said} says it, and it is no invariant"
    for code, found in house.oracles.items():
        if code not in house.invariants:
            yield f"{code}: {found.name} of {found.file} judges it, and it is no invariant"


def _mutant_gaps(house: House) -> Iterator[str]:
    for mutant in house.mutants.values():
        if mutant.killer not in house.invariants:
            yield f"{mutant.id}: {mutant.killer} has to kill it, and is no invariant"
        if mutant.exposed_by not in house.manifests:
            yield f"{mutant.id}: {mutant.exposed_by} exposes it, and is no manifest"
        if not overridden(mutant):
            yield f"{mutant.id}: it overrides no method of the engine"


def _section_gaps(house: House) -> Iterator[str]:
    listed = {section.id for section in house.sections}
    for name, section in _naming(house):
        if section not in listed:
            yield f"{section}: {name} names it, and the list of sections does not have it"
    for late in consecutive(house.sections):
        yield f"{late}: it does not follow the section listed before it"
    for entry in house.sections:
        codes = house.codes_of(entry)
        if entry.kind == "covered" and not (codes or entry.files):
            yield f"{entry.id}: no clause says what it demands ({entry.title})"
        if entry.kind == "narrative" and codes:
            yield f"{entry.id}: it is listed as demanding nothing, and {codes[0]} is of it"
        for code in entry.codes:
            if code not in house.invariants:
                yield f"{entry.id}: it is said to be covered by {code}, which is no invariant"
            if code in house.naming(entry.id):
                yield f"{entry.id}: {code} is listed with it, and names it already"
        for file in entry.files:
            if file not in house.files:
                yield f"{entry.id}: it is said to be covered by {file}, which is not there"


def _naming(house: House) -> Iterator[tuple[str, str]]:
    """Whoever names a section, and the section."""
    for code, invariant in house.invariants.items():
        yield code, invariant.section
    for mutant in house.mutants.values():
        yield mutant.id, mutant.section
    for name, named in house.manifests.items():
        for section in sorted(named):
            yield f"the manifest {name}", section
