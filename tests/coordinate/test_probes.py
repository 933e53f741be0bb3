"""Every unlawful document breaks one rule, by the literal rules, and its original none."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from medusa_conformance.probes import PLACES, PROBES, unlawful_documents
from medusa_oracles.coordinate import derive_violations
from medusa_spec.coordinate import Generation, Ranking
from medusa_spec.documents import schema_errors
from medusa_spec.lawful import violations
from medusa_spec.loading import source_pin


@pytest.fixture
def document(coordinate: Any) -> Any:
    """One that every probe can break."""
    earlier = Generation((1, 2, 3), ((0,), (0, 1)))
    # Long enough for three different places in every list.
    chain = ((0,), (0, 1), (0, 1, 2), (0, 1, 2, 0))
    ranking = Ranking(7, ((1, 2, 3), (4, 5, 6), (7, 8, 9), (1, 5, 9), (2, 4, 6)))
    source = replace(coordinate().source, files=dict(list(source_pin()["files"].items())))
    lawful = coordinate(earlier=earlier, ranking=ranking, heads=5, paths=chain)
    names = [name for name in source.files if "legacy" not in name]
    files = {name: source.files[name] for name in names}
    return replace(lawful, source=replace(source, files=files)).document()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_a_probe_breaks_one_rule(probe: Any, place: Any, document: Any) -> None:
    assert derive_violations(document) == frozenset()
    assert probe.fits(document)
    probe.corrupt(document, place)
    broken = derive_violations(document)
    assert len(broken) == 1
    if not list(schema_errors(document, "coordinate")):
        assert {violation.code for violation in violations(document, source_pin())} == broken


def test_a_probe_works_on_its_own_copy(document: Any) -> None:
    original = deepcopy(document)
    assert len(list(unlawful_documents(document))) == len(PROBES)
    assert document == original


def test_the_seed_says_where_a_list_is_broken(document: Any) -> None:
    document["prefix"], outside = [7, 8, 9], document["model"]["vocabulary"]
    document["prefix_length"] = 3
    found = []
    for seed in range(3):
        document["policy"]["seed"] = seed
        prefixes = [broken["prefix"] for broken in unlawful_documents(document)]
        found += [prefix.index(outside) for prefix in prefixes if outside in prefix]
    assert found == [0, 1, 2]


def test_what_a_document_lacks_is_not_broken(coordinate: Any) -> None:
    bare = coordinate(paths=(), heads=0).document()
    for broken in unlawful_documents(bare):
        assert derive_violations(broken)
