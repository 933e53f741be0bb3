"""Which workloads are lawful: one clear error for any other, that names the field and the rule."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import medusa_manifests
from medusa_spec.documents import schema
from medusa_spec.errors import InputError
from medusa_spec.loading import coordinate_from

Document = dict[str, Any]


@pytest.fixture
def document() -> Document:
    return copy.deepcopy(medusa_manifests.load("cost-nine-row").document())


def refused(document: Document) -> InputError:
    with pytest.raises(InputError) as caught:
        coordinate_from(document, "m.yaml")
    return caught.value


def test_a_workload_comes_back_as_it_was_written(document: Document) -> None:
    assert coordinate_from(document, "m.yaml").document() == document


@pytest.mark.parametrize("name", schema("coordinate")["properties"]["cost"]["required"])
def test_every_field_is_written_out(document: Document, name: str) -> None:
    del document["cost"][name]
    assert str(refused(document)).startswith("m.yaml: cost: ")


@pytest.mark.parametrize(
    "name",
    schema("coordinate")["properties"]["cost"]["properties"]["profile"]["anyOf"][1]["required"],
)
def test_every_field_of_a_profile_is_written_out(document: Document, name: str) -> None:
    del document["cost"]["profile"][name]
    assert "cost.profile" in str(refused(document))


@pytest.mark.parametrize(
    ("change", "field", "rule"),
    [
        ({"batch": 2}, "cost.batch", "1 was expected"),
        ({"scalar_bytes": 16}, "cost.scalar_bytes", "16 is not one of [2, 4, 8]"),
        ({"head_rows": "winner"}, "cost.head_rows", "is not one of"),
        ({"unknown": 1}, "cost", "unknown"),
        ({"prefix": 0}, "cost.prefix", "less than the minimum"),
        ({"hidden": 4100}, "cost.hidden", "rotary pairs need a multiple"),
        ({"kv_heads": 5}, "cost.kv_heads", "is 5, which does not divide the 32 attention heads"),
        ({"paths": [[0], [0]]}, "cost.paths[1]", "[0] occurs twice"),
        ({"paths": [[0, 1]]}, "cost.paths[0]", "[0, 1] has no ancestor [0]"),
        ({"paths": [[-1]]}, "cost.paths[0]", "rank -1 of [-1] is outside"),
        ({"heads": 1}, "cost.paths[2]", "[0, 0] has depth 2, and there are 1 heads"),
        ({"published": 4}, "cost.published", "is 4, and the longest path publishes 3"),
    ],
)
def test_what_is_not_lawful_is_named(
    document: Document, change: Document, field: str, rule: str
) -> None:
    document["cost"] |= change
    error = refused(document)
    assert error.field == field
    assert rule in str(error)


@pytest.mark.parametrize("published", [3, 13])
def test_rounds_publish_a_root_and_no_more_than_the_tree(
    document: Document, published: int
) -> None:
    """Four rounds over a tree of depth two publish four tokens at least and twelve at most."""
    document["cost"]["profile"]["published"] = published
    error = refused(document)
    assert error.field == "cost.profile.published"
    assert f"is {published}; 4 rounds publish 4 to 12" in str(error)


@pytest.mark.parametrize("least", [4, 12])
def test_the_fewest_and_the_most_tokens_are_lawful(document: Document, least: int) -> None:
    document["cost"]["profile"]["published"] = least
    assert coordinate_from(document, "m.yaml").cost is not None


@pytest.mark.parametrize(
    ("name", "value"), [("round", 0), ("baseline_step", -1.0), ("rounds", 0), ("evidence", "told")]
)
def test_a_profile_of_nothing_is_refused(document: Document, name: str, value: Any) -> None:
    document["cost"]["profile"][name] = value
    assert "cost.profile" in str(refused(document))


@pytest.mark.parametrize(
    ("baseline", "each"),
    [
        (1e308, 1e-308),
        (1e-308, 1e308),
        # The overhead is a number, and ten tokens over it are none.
        (1e308, 1.0),
    ],
)
def test_costs_whose_quotient_is_no_number_are_refused(
    document: Document, baseline: float, each: float
) -> None:
    document["cost"]["profile"] |= {"baseline_step": baseline, "round": each}
    error = refused(document)
    assert error.field == "cost.profile.round"
    assert str(error).endswith(
        f"is {each:g}, and a baseline step {baseline:g}: their quotient is no number that a float"
        " holds"
    )


def test_a_tree_has_any_order_and_its_canonical_one(
    document: Document, coordinate: Callable[..., Any]
) -> None:
    document["cost"]["paths"].reverse()
    workload = coordinate_from(document, "m.yaml").cost
    assert workload is not None
    assert workload.paths == coordinate().paths
