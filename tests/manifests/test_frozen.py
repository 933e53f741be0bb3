from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import yaml

import medusa_manifests
from medusa_spec import Coordinate

SMALL = [name for name in medusa_manifests.names() if medusa_manifests.load(name).nodes <= 9]

# SHA-256 over the JSON of each list of medusa/model/medusa_choices.py at the pinned commit.
PUBLIC = {
    "public-mc-sim-7b-63": "35c38d3c9cde7957c18de9f5cca50aa9fd3b3947479a0f171412e87b7c3ad3d6",
    "public-vicuna-13b-stage1": "6df6cfc919a321cc769263553c699851928e7933598bb1085ec329532c1ad858",
    "public-vicuna-13b-stage2": "81755b321a66ed2c0a9d88554e204265b94ce33ccb7afa38dd1187c45cb015d6",
    "public-vicuna-33b-stage1": "9db410c819cdbf94dc19a311edf25dd962c02af9c1d51c8c90a0f75f215f955d",
    "public-vicuna-33b-stage2": "22778f6a7b3d19d2c9fc21e5a782f7ad63a98114e3d8293461e010aeba054b8d",
    "public-vicuna-7b-stage1": "7a9f647ee775c4d7dc09b082a9f5f975ed1c55d3e12b74628c09feb2c429865a",
    "public-vicuna-7b-stage1-ablation": (
        "944fab219933cda359ec7d3efc4f7e10b345bead3978bbd3775588201f953bde"
    ),
    "public-vicuna-7b-stage2": "39fbc6f667c1b129d7ee3eefec19361fe5c2ae733c0726fe30eb52deb5ea3357",
    "public-zephyr-stage2": "a93cbb6a38c62726e581dddccfe33ec09e9740ec5a0e5b841f3bd04dbedad72f",
}

OURS = {
    "a31-nine-row",
    "cache-full",
    "chain-three",
    "checkpoint-adapter",
    "checkpoint-independent",
    "checkpoint-joint",
    "checkpoint-shared",
    "commit-trace",
    "depth-one",
    "posterior-fast-typical",
    "posterior-greedy",
    "rank-gaps",
    "regular-3-2-2",
    "root-only",
    "six-node",
    "verification-p5",
    "threshold-tie",
    "likelihood-tie",
    "end-of-sequence",
    "two-blocks",
    "own-acceptance",
    "own-acceptance-typical",
    "end-of-sequence-zero",
    "long-prefix",
    "labels-seven",
    "assistant-only",
    "assistant-only-joint",
    "assistant-only-distilled",
    "padded-batch",
    "two-turns",
    "empty-head",
    "crosses-128",
    "crosses-256",
    "earlier-alike",
    "likelihood-product",
    "regular-8-8",
    "six-deep",
    "twelve-ranks",
    "twenty-deep",
    "wide-vocabulary",
    "equal-increments",
    "ten-paths",
    "two-heads",
    "cost-nine-row",
    "cost-nine-row-terminal",
    "cost-odd-sizes",
    "cost-regular-3-2-2",
    "cost-shared-heads",
    "typed-edges",
    "typed-mixed",
    "typed-run",
    "typed-sources",
    "law-fast-typical",
    "law-greedy",
    "law-nucleus-per-path",
    "law-rejection",
    "law-rejection-four",
    "law-rejection-uncorrected",
    "law-row-draw",
    "law-row-draw-four",
    "law-typical-per-path",
}


Frozen = Callable[[Coordinate], dict[str, Any]]


@pytest.fixture(scope="module")
def frozen(literal: ModuleType, literal_law: ModuleType) -> Frozen:
    """What the literal formulas give of a coordinate."""
    return lambda coordinate: literal.frozen(coordinate) | literal_law.frozen(coordinate)


def disagreements(frozen: Frozen, coordinate: Coordinate, expected: Any) -> list[str]:
    """The frozen fields that the literal formula does not give."""
    derived = frozen(coordinate)
    return [name for name, value in expected.items() if derived.get(name) != value]


def cells(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in a document that holds a number."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, int | float):
            yield value, key
        elif not isinstance(item, str):
            yield from cells(item)


def test_every_manifest_that_must_exist_does():
    assert set(medusa_manifests.names()) == OURS | PUBLIC.keys()


@pytest.mark.parametrize("name", medusa_manifests.names())
def test_a_manifest_bears_the_name_of_its_file(name: str):
    assert medusa_manifests.load(name).name == name
    assert medusa_manifests.path(name).name == f"{name}.yaml"


@pytest.mark.parametrize("name", medusa_manifests.names())
def test_the_literal_formula_gives_every_frozen_value(name: str, frozen: Frozen):
    coordinate = medusa_manifests.load(name)
    assert coordinate.expected
    assert disagreements(frozen, coordinate, coordinate.expected) == []


@pytest.mark.parametrize("name", SMALL)
def test_no_frozen_cell_can_change_unnoticed(name: str, frozen: Frozen):
    coordinate = medusa_manifests.load(name)
    derived = frozen(coordinate)
    changed = copy.deepcopy(dict(coordinate.expected))
    count = 0
    for container, key in cells(changed):
        kept = container[key]
        for step in (1, -1):
            container[key] = kept + step
            assert any(derived.get(field) != value for field, value in changed.items())
            count += 1
        container[key] = kept
    assert changed == coordinate.expected
    assert count >= 2 * 5


@pytest.mark.parametrize("name", medusa_manifests.names())
def test_what_a_round_can_show_is_frozen(name: str):
    coordinate = medusa_manifests.load(name)
    frozen = set(coordinate.expected)
    tree = {"tree_indices", "attention_mask", "position_ids", "retrieve_indices", "parents"}
    assert tree | {"positions", "staged_rows"} <= frozen
    assert ("packed_tokens" in frozen) == (coordinate.ranking is not None)
    assert ("candidates" in frozen) == (coordinate.ranking is not None)
    assert ("admitted" in frozen) == (coordinate.search is not None)
    assert ("ledger" in frozen) == (coordinate.cost is not None)
    for field in ("typed", "local", "claimed"):
        assert (field in frozen) == (coordinate.claims is not None)
    assert ({"law", "distance"} <= frozen) == (coordinate.exactness is not None)
    if coordinate.posterior:
        assert coordinate.policy.mode.replace("-", "_") in frozen


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_list_is_that_of_the_pinned_release(name: str):
    document = yaml.safe_load(medusa_manifests.path(name).read_text("utf-8"))
    listed = json.dumps(document["paths"]).encode()
    assert hashlib.sha256(listed).hexdigest() == PUBLIC[name]
    assert len(document["paths"]) == 63
    assert "63 rank paths, 64 rows" in document["note"]


def test_both_retrieval_orders_variants_and_policies_occur():
    coordinates = [medusa_manifests.load(name) for name in medusa_manifests.names()]
    assert {c.policy.retrieval_order for c in coordinates} == {"canonical", "pinned"}
    assert {c.policy.mode for c in coordinates} == {"greedy", "fast-typical"}
    projections = {(c.source.variant, c.model.projection) for c in coordinates}
    assert projections == {("current", "independent"), ("legacy", "shared")}


def test_the_full_cache_is_exactly_full():
    coordinate = medusa_manifests.load("cache-full")
    assert coordinate.capacity == coordinate.prefix_length + coordinate.nodes


def test_both_posterior_manifests_speak_of_one_surface():
    greedy = medusa_manifests.load("posterior-greedy")
    typical = medusa_manifests.load("posterior-fast-typical")
    assert greedy.posterior == typical.posterior
    assert greedy.expected == typical.expected
    assert (greedy.policy.mode, typical.policy.mode) == ("greedy", "fast-typical")
