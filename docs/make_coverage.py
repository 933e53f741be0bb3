"""Write the tables of this folder again, from registry, oracles, catalog, manifests and chapters.

    python docs/make_coverage.py

`coverage.md` follows each clause to its oracle, its mutants and what exposes them; `mutants.md`
goes the other way; `sections.md` says what becomes of each section of the article; `failures.md`
begins with what goes wrong. The pages are written in any case; where something has no counterpart,
the script names it and fails.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from os.path import relpath
from pathlib import Path
from textwrap import fill

from medusa_conformance.coverage import House, gaps, house_files, overridden, read_house
from medusa_mutations import Mutation
from medusa_spec.files import write_text
from medusa_spec.registry import Invariant
from medusa_spec.sections import Section

DOCS = Path(__file__).resolve().parent

PAGES = {
    "coverage.md": "each clause, its oracle, its mutants, and the coordinates that expose them",
    "mutants.md": "each mutant, where it is wrong, and the clause that must kill it",
    "sections.md": "each section of the article, its clauses, and their code",
    "failures.md": "what goes wrong, why, and who notices",
}

NONE = "**none**"
"""Stands where there is a gap."""


def main() -> None:
    """All pages, and a failure that names each gap."""
    root = DOCS.parent
    for name, text in pages(read_house(root)).items():
        write_text(DOCS / name, text)
    # Read again, for a page may cover a section, and may not have been there.
    found = list(gaps(read_house(root)))
    if found:
        sys.exit("\n".join(found))


def pages(house: House) -> dict[str, str]:
    """The text of each page, by its name in this folder."""
    blocks: Mapping[str, Callable[[House], Iterator[str]]] = {
        "coverage.md": coverage,
        "mutants.md": mutants,
        "sections.md": sections,
        "failures.md": failures,
    }
    return {name: "\n\n".join(blocks[name](house)) + "\n" for name in PAGES}


def coverage(house: House) -> Iterator[str]:
    """From the clause to the coordinate, contract by contract."""
    yield from opening(
        "Coverage",
        "coverage.md",
        "Every rule is said by a clause, judged by an oracle, and broken by at least one mutant, "
        "which it must kill on a coordinate named last. A test fails where one of them is missing.",
    )
    head = ("contract", "clauses", "oracles", "mutants", "coordinates")
    counted = [counts(house, [contract]) for contract in house.contracts]
    listed = [f"[{contract}](#{contract})" for contract in house.contracts]
    total = ("all", *counts(house, house.contracts))
    yield table(head, [*((n, *row) for n, row in zip(listed, counted, strict=True)), total])
    for contract in house.contracts:
        yield f"## {contract}"
        yield files_of(house, contract)
        yield table(
            ("clause", "invariant", "oracle", "mutants", "exposed by"),
            (
                (
                    clause(invariant),
                    f"`{invariant.code}`",
                    oracle(house, invariant.code),
                    names(m.id for m in house.mutants_of(invariant.code)),
                    manifests(m.exposed_by for m in house.mutants_of(invariant.code)),
                )
                for invariant in rules_of(house, [contract])
            ),
        )


def counts(house: House, contracts: Sequence[str]) -> tuple[int, ...]:
    """How many clauses, oracles, mutants, and coordinates that expose them, there are of some."""
    codes = {invariant.code for invariant in rules_of(house, contracts)}
    broken = mutants_of(house, contracts)
    said = sum(entry.code in codes for entry in house.clauses)
    return said, len(codes & house.oracles.keys()), len(broken), len({m.exposed_by for m in broken})


def mutants(house: House) -> Iterator[str]:
    """From the mutant to the clause, contract by contract."""
    yield from opening(
        "Mutants",
        "mutants.md",
        "Each mutant is the reference engine with some methods replaced, and the rule that is "
        "named must kill it. `medusa-oracles verify` proves it of all of them, and `medusa-oracles "
        "explain CODE` shows one.",
    )
    for contract in house.contracts:
        yield f"## {contract}"
        yield table(
            ("mutant", "replaces", "what is wrong", "killed by", "exposed by"),
            (
                (
                    f"`{mutant.id}`",
                    names(overridden(mutant)),
                    plain(mutant.sentence),
                    rule(house, mutant.killer),
                    manifests([mutant.exposed_by]),
                )
                for mutant in mutants_of(house, [contract])
            ),
        )


def sections(house: House) -> Iterator[str]:
    """From the section of the article to the clause, and from there to the code."""
    yield from opening(
        "Sections of the article",
        "sections.md",
        "The rules come from *M7.2 - Medusa: Multi-Head Candidates, Tree Attention, and "
        "Verification*. A section is covered by the clauses that name it, and by those that must "
        "kill a mutant that does. Where it leaves its matter to others, or demands nothing, the "
        "reason stands here.",
    )
    for _, group in groupby(house.sections, key=lambda section: section.chapter):
        chapter = list(group)
        yield f"## {chapter[0].id} {chapter[0].title}"
        yield table(
            ("section", "title", "covered by", "code", "shown by"),
            ((entry.id, entry.title, *covering(house, entry)) for entry in chapter),
        )


def covering(house: House, section: Section) -> tuple[str, ...]:
    """What becomes of a section: clauses, their code, and the coordinates that speak of it."""
    said: list[str] = []
    code: list[str] = []
    if section.reason:
        word = "Out of scope" if section.kind == "out-of-scope" else "No rule"
        said.append(f"*{word}.* {plain(section.reason)}")
    found = [house.invariants[name] for name in house.codes_of(section)]
    for contract in house.contracts:
        of_it = [invariant for invariant in found if invariant.contract == contract]
        if of_it:
            numbers = " ".join(invariant.clause for invariant in of_it)
            said.append(f"{link(contract, of_it[0].chapter, '#clauses')} {numbers}")
            code.append(" ".join([contract, *code_of(house, contract, of_it)]))
    for file in section.files:
        (said if file.endswith(".md") else code).append(link(Path(file).name, file))
    shown = [name for name, named in house.manifests.items() if section.id in named]
    return "<br>".join(said) or ("" if code else NONE), "<br>".join(code), manifests(shown)


def failures(house: House) -> Iterator[str]:
    """From what goes wrong to who notices."""
    yield from opening(
        "Failures",
        "failures.md",
        "Begin with what goes wrong. Behind it stand the usual cause, the rule that is broken, the "
        "oracle that judges it, and the mutants that fail in this way.",
    )
    for contract in house.contracts:
        yield f"## {contract}"
        yield table(
            ("what goes wrong", "usual cause", "rule", "oracle", "mutants"),
            (
                (
                    consequence(house, invariant.code),
                    plain(invariant.cause),
                    rule(house, invariant.code),
                    oracle(house, invariant.code),
                    names(m.id for m in house.mutants_of(invariant.code)),
                )
                for invariant in rules_of(house, [contract])
            ),
        )


def opening(title: str, page: str, text: str) -> Iterator[str]:
    """The head of a page, and the way to the others."""
    yield f"# {title}"
    yield fill(text, 100)
    yield "Written by `make coverage`: mend what it is made of, and never this page. Beside it:"
    others = (f"- [{name}]({name}): {what}" for name, what in PAGES.items() if name != page)
    yield "\n".join(others)


def files_of(house: House, contract: str) -> str:
    """One name through the house."""
    chapter, *_, tests = house_files(contract)
    parts = [
        link("chapter", chapter),
        *code_of(house, contract, rules_of(house, [contract])),
        link("mutants", "docs/mutants.md", f"#{contract}"),
        link("tests", tests),
    ]
    return " · ".join(parts)


def code_of(house: House, contract: str, judged: Iterable[Invariant]) -> Iterator[str]:
    """The oracles that judge these rules of a contract, and the stage of the engine."""
    places = [house.oracles[i.code] for i in judged if i.code in house.oracles]
    for file in dict.fromkeys(place.file for place in places):
        # A contract of many rules has further modules, named behind the first.
        stem = Path(file).stem
        yield link("oracle" if stem == contract else f"oracle {stem}", file)
    if contract in house.stages:
        yield link(f"`{house.stages[contract].name}`", house.stages[contract].file)


def rules_of(house: House, contracts: Sequence[str]) -> list[Invariant]:
    """The invariants of some contracts, in the order of the registry."""
    return [i for i in house.invariants.values() if i.contract in contracts]


def mutants_of(house: House, contracts: Sequence[str]) -> list[Mutation]:
    """The mutants of some contracts, in the order of the catalog."""
    return [m for m in house.mutants.values() if m.contract in contracts]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; a bar in a cell would end the cell."""
    cells = [[str(cell).replace("|", r"\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in [list(head), *cells]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def plain(text: str) -> str:
    """Text that is no Markdown: a product is no emphasis, and no comparison a tag."""
    return re.sub(r"([*<`])", r"\\\1", text)


def link(text: str, file: str, anchor: str = "") -> str:
    """A link from this folder to a file of the checkout."""
    return f"[{text}]({relpath(file, 'docs')}{anchor})"


def clause(invariant: Invariant) -> str:
    """The number of a clause, and the way to it."""
    return link(invariant.clause, invariant.chapter, "#clauses")


def rule(house: House, code: str) -> str:
    """A clause with its code; the code alone where no invariant has it."""
    known = house.invariants.get(code)
    return f"{clause(known)} `{code}`" if known else f"`{code}` {NONE}"


def oracle(house: House, code: str) -> str:
    """The function that judges a rule, and the way to its file."""
    found = house.oracles.get(code)
    return link(f"`{found.name}`", found.file) if found else NONE


def consequence(house: House, code: str) -> str:
    """What a chapter says goes wrong, as a sentence of its own."""
    said = house.clause_of(code)
    return said.broken[:1].upper() + said.broken[1:] if said else NONE


def names(listed: Iterable[str]) -> str:
    """Names as they are typed."""
    return ", ".join(f"`{name}`" for name in listed) or NONE


def manifests(listed: Iterable[str]) -> str:
    """The ways to manifests, each once; nothing where there is none."""
    folder = "manifests/medusa_manifests"
    return ", ".join(link(name, f"{folder}/{name}.yaml") for name in dict.fromkeys(listed))


if __name__ == "__main__":
    main()
