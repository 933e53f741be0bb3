"""What is kept on published packages: files that replay, and expectations that name their page."""

from __future__ import annotations

from pathlib import Path

import pytest

from medusa_conformance.expected import load_expectations
from medusa_spec.documents import load_document, schema_errors
from medusa_spec.loading import coordinate_from
from medusa_spec.registry import invariants

ROOT = Path(__file__).parents[2]
HERE = ROOT / "conformance" / "third_party"
FINDINGS = sorted((HERE / "findings").glob("*.json"))
EXPECTED = sorted((HERE / "expected").glob("*.yaml"))


@pytest.mark.parametrize("file", FINDINGS, ids=lambda file: file.stem)
def test_a_finding_can_be_replayed_from_any_checkout(file: Path) -> None:
    document = load_document(file)
    assert schema_errors(document, "finding") == []
    package, _, code = file.stem.partition("-")
    assert document["code"] == code
    module = document["target"]["text"].partition(":")[0]
    assert document["target"] == {
        "kind": "module",
        "text": document["target"]["text"],
        "folder": ".",
    }
    assert package.startswith(module.rpartition(".")[2].partition("_")[0])
    assert document["replay"] == f"medusa-oracles replay {file.relative_to(ROOT)}"
    coordinate_from(document["coordinate"], file.name)


@pytest.mark.parametrize("file", FINDINGS, ids=lambda file: file.stem)
def test_a_finding_is_expected_and_told_of(file: Path) -> None:
    package, _, code = file.stem.partition("-")
    entries = {e.invariant: e for e in load_expectations(HERE / "expected" / f"{package}.yaml")}
    page = (ROOT / entries[code].link).read_text("utf-8")
    assert f"findings/{file.name}" in page


@pytest.mark.parametrize("file", EXPECTED, ids=lambda file: file.stem)
def test_an_expectation_names_a_rule_and_a_page(file: Path) -> None:
    for entry in load_expectations(file):
        assert entry.invariant in invariants()
        assert (ROOT / entry.link).is_file()
