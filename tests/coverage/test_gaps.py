"""Nothing is without its counterpart, and whatever is taken away is missed by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medusa_conformance.coverage import (
    House,
    Place,
    gaps,
    house_files,
    oracle_place,
    overridden,
    read_clauses,
)
from medusa_mutations import mutations
from medusa_oracles import oracles
from medusa_spec.registry import CONTRACTS, invariants, of_contract
from medusa_spec.sections import Section, sections

EVERY = pytest.mark.parametrize("contract", CONTRACTS)


def first(contract: str) -> str:
    return of_contract(contract)[0].code


def without(listed: Any, gone: Any) -> Any:
    """A copy of a mapping without one key, or of a tuple without one entry."""
    if isinstance(listed, tuple):
        return tuple(entry for entry in listed if entry != gone)
    return {key: value for key, value in listed.items() if key != gone}


@pytest.fixture(scope="session")
def missed(house: House) -> Callable[..., set[str]]:
    """The gaps that a changed house has and this one has not."""
    known = set(gaps(house))

    def compare(**changed: Any) -> set[str]:
        return set(gaps(replace(house, **changed))) - known

    return compare


def test_every_contract_is_whole(house: House) -> None:
    listed = {section.id for section in house.sections}
    assert [gap for gap in gaps(house) if gap.partition(":")[0] not in listed] == []


@pytest.mark.parametrize("section", [section.id for section in sections()])
def test_no_section_of_the_source_is_forgotten(house: House, section: str) -> None:
    assert [gap for gap in gaps(house) if gap.startswith(f"{section}:")] == []


def test_the_house_holds_all_there_is(house: House) -> None:
    assert house.contracts == CONTRACTS
    assert [clause.code for clause in house.clauses] == list(invariants())
    assert list(house.oracles) == list(invariants())
    assert {*house.stages} >= {*CONTRACTS}
    assert house.mutants == mutations()
    assert house.sections == sections()


@EVERY
def test_an_oracle_that_is_gone_is_missed(contract: str, house: House, missed: Any) -> None:
    code = first(contract)
    assert missed(oracles=without(house.oracles, code)) == {f"{code}: no oracle judges it"}


@EVERY
def test_a_clause_that_is_gone_is_missed(contract: str, house: House, missed: Any) -> None:
    code = first(contract)
    left = without(house.clauses, house.clause_of(code))
    assert missed(clauses=left) == {f"{code}: spec/{contract}.md has no clause of it"}


@EVERY
def test_a_rule_without_a_mutant_is_missed(contract: str, house: House, missed: Any) -> None:
    code = first(contract)
    left = {name: mutant for name, mutant in house.mutants.items() if mutant.killer != code}
    assert f"{code}: no mutant breaks it" in missed(mutants=left)


def test_one_mutant_of_several_is_not_missed(house: House, missed: Any) -> None:
    assert missed(mutants=without(house.mutants, "sibling-visible")) == set()


@EVERY
def test_a_rule_that_is_gone_is_missed_from_three_sides(
    contract: str, house: House, missed: Any
) -> None:
    code = first(contract)
    clause, place = house.clause_of(code), house.oracles[code]
    assert clause is not None
    found = missed(invariants=without(house.invariants, code))
    assert found >= {
        f"{code}: clause {clause.number} of spec/{contract}.md says it, and it is no invariant",
        f"{code}: {place.name} of {place.file} judges it, and it is no invariant",
        *(
            f"{mutant.id}: {code} has to kill it, and is no invariant"
            for mutant in house.mutants_of(code)
        ),
    }


@EVERY
def test_a_stage_that_is_gone_is_missed(contract: str, house: House, missed: Any) -> None:
    left = without(house.stages, contract)
    assert missed(stages=left) == {f"{contract}: no stage of the engine does it"}


@pytest.mark.parametrize("file", house_files("tree"))
def test_a_file_that_is_gone_is_missed(file: str, house: House, missed: Any) -> None:
    assert missed(files=house.files - {file}) == {f"tree: there is no {file}"}


def test_a_contract_of_which_there_is_only_the_name_lacks_everything(
    house: House, missed: Any
) -> None:
    assert missed(contracts=(*CONTRACTS, "weather")) == {
        "weather: there is no spec/weather.md",
        "weather: there is no oracles/medusa_oracles/weather.py",
        "weather: there is no reference_engine/medusa_reference_engine/weather.py",
        "weather: there is no mutations/medusa_mutations/weather.py",
        "weather: there is no tests/weather",
        "weather: no stage of the engine does it",
        "weather: no invariant is of it",
    }
    assert "TREE.SLOT: tree is no contract" in missed(contracts=without(CONTRACTS, "tree"))


def test_a_manifest_that_is_gone_is_missed(house: House, missed: Any) -> None:
    assert missed(manifests=without(house.manifests, "two-blocks")) == {
        f"{mutant.id}: two-blocks exposes it, and is no manifest"
        for mutant in house.mutants.values()
        if mutant.exposed_by == "two-blocks"
    }


@pytest.mark.parametrize(
    ("field", "value", "gap"),
    [
        ("number", "T9", "its clause and the registry differ in contract, number or section"),
        ("section", "0x03", "its clause and the registry differ in contract, number or section"),
        ("contract", "heads", "its clause and the registry differ in contract, number or section"),
        ("broken", "", "its clause does not say what goes wrong where it is broken"),
    ],
)
def test_a_clause_that_says_something_else_is_found(
    field: str, value: str, gap: str, house: House, missed: Any
) -> None:
    clause = house.clause_of("TREE.SLOT")
    assert clause is not None
    changed = replace(clause, **{field: value})
    left = tuple(changed if entry == clause else entry for entry in house.clauses)
    assert missed(clauses=left) == {f"TREE.SLOT: {gap}"}


def test_a_clause_that_no_one_registered_is_found(house: House, missed: Any) -> None:
    clause = house.clause_of("TREE.SLOT")
    assert clause is not None
    extra = replace(clause, number="T11", code="TREE.BARK")
    gap = "TREE.BARK: clause T11 of spec/tree.md says it, and it is no invariant"
    assert missed(clauses=(*house.clauses, extra)) == {gap}


def test_an_oracle_of_nothing_is_found(house: House, missed: Any) -> None:
    extra = house.oracles | {"TREE.BARK": Place("oracles/medusa_oracles/tree.py", "bark")}
    gap = "TREE.BARK: bark of oracles/medusa_oracles/tree.py judges it, and it is no invariant"
    assert missed(oracles=extra) == {gap}


def test_a_mutant_that_replaces_nothing_is_found(house: House, missed: Any) -> None:
    mutant = house.mutants["sibling-visible"]
    idle = replace(mutant, stage=type("Idle", (mutant.stage.__base__,), {"unheard_of": 1}))
    changed = house.mutants | {mutant.id: idle}
    assert missed(mutants=changed) == {f"{mutant.id}: it overrides no method of the engine"}


def test_a_section_that_is_gone_is_missed_by_whoever_names_it(house: House, missed: Any) -> None:
    (gone,) = (section for section in house.sections if section.id == "0x03A")
    found = missed(sections=without(house.sections, gone))
    unlisted = "names it, and the list of sections does not have it"
    assert found >= {
        f"0x03A: TREE.POSITION_IS_DEPTH {unlisted}",
        f"0x03A: position-from-row {unlisted}",
        "0x03B: it does not follow the section listed before it",
    }
    (told,) = (section for section in house.sections if section.id == "0x03B")
    manifest = f"0x03B: the manifest six-node {unlisted}"
    assert manifest in missed(sections=without(house.sections, told))


def test_a_section_that_nobody_names_is_missed_by_its_neighbour(house: House, missed: Any) -> None:
    (gone,) = (section for section in house.sections if section.id == "0x00A")
    gap = "0x00B: it does not follow the section listed before it"
    assert missed(sections=without(house.sections, gone)) == {gap}


@pytest.mark.parametrize(
    ("entry", "gap"),
    [
        (
            Section("0xFF", "Reference", "covered"),
            "0xFF: no clause says what it demands (Reference)",
        ),
        (
            Section("0x03", "Tree Attention", "narrative", "there is nothing to it"),
            "0x03: it is listed as demanding nothing, and TREE.MASK_IS_ANCESTRY is of it",
        ),
        (
            Section("0xFF", "Reference", "covered", codes=("TREE.BARK", "TREE.SLOT")),
            "0xFF: it is said to be covered by TREE.BARK, which is no invariant",
        ),
        (
            Section("0xFF", "Reference", "covered", files=("docs/bark.md",)),
            "0xFF: it is said to be covered by docs/bark.md, which is not there",
        ),
        (
            Section("0x03", "Tree Attention", "covered", codes=("TREE.MASK_IS_ANCESTRY",)),
            "0x03: TREE.MASK_IS_ANCESTRY is listed with it, and names it already",
        ),
    ],
)
def test_a_section_that_is_listed_wrongly_is_found(
    entry: Section, gap: str, house: House, missed: Any
) -> None:
    changed = tuple(entry if section.id == entry.id else section for section in house.sections)
    assert missed(sections=changed) == {gap}


def test_clauses_are_read_from_a_chapter(tmp_path: Path) -> None:
    (tmp_path / "spec").mkdir()
    (tmp_path / "spec" / "weather.md").write_text(
        "# Weather\n\n**W1 `WEATHER.RAIN`** (0x0B). It rains.\n`rain > 0`.\n"
        "*Broken:* everybody\nstays dry.\n\n**W2 `WEATHER.SUN`** (0x0B). It shines.\n\nText.\n",
        "utf-8",
    )
    found = list(read_clauses(tmp_path, "weather"))
    assert [(c.contract, c.number, c.code, c.section, c.broken) for c in found] == [
        ("weather", "W1", "WEATHER.RAIN", "0x0B", "everybody stays dry."),
        ("weather", "W2", "WEATHER.SUN", "0x0B", ""),
    ]
    assert list(read_clauses(tmp_path, "climate")) == []


def test_an_oracle_is_known_by_the_function_that_made_it() -> None:
    file = "oracles/medusa_oracles/coordinate.py"
    assert oracle_place(oracles()["COORDINATE.SCHEMA"].check) == Place(file, "_must_refuse")
    assert oracle_place(oracles()["COORDINATE.DOMAINS"].check) == Place(file, "domains")


def test_what_a_mutant_replaces_is_named_as_the_engine_names_it() -> None:
    assert overridden(mutations()["sibling-visible"]) == ["TreeStage.visible"]
    # Its own base stands between it and the engine, and `previous` is a thing it remembers.
    assert overridden(mutations()["permute-only-mask"]) == ["TreeStage.compile"]
    stale = overridden(mutations()["stale-mask-of-previous-tree"])
    assert stale == ["VerificationStage.rectangular_mask"]
