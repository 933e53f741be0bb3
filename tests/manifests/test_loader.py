from __future__ import annotations

import pytest

import medusa_manifests
from medusa_spec import InputError


def test_names_are_sorted_and_hold_no_tolerances():
    names = medusa_manifests.names()
    assert list(names) == sorted(names)
    assert "tolerances" not in names


def test_a_manifest_is_loaded_once():
    assert medusa_manifests.load("six-node") is medusa_manifests.load("six-node")


@pytest.mark.parametrize("name", ["no-such", "tolerances", "../medusa_manifests/six-node", ""])
def test_an_unknown_name_lists_the_known_ones(name: str):
    with pytest.raises(InputError) as caught:
        medusa_manifests.load(name)
    assert "no such manifest; there are a31-nine-row, assistant-only, " in str(caught.value)


def test_each_dtype_and_the_policy_have_a_tolerance_with_a_reason():
    found = [medusa_manifests.tolerance(d) for d in ("float64", "float32", "bfloat16", "policy")]
    assert all(0 < t.atol < 1 and 0 < t.rtol < 1 and len(t.reason) > 40 for t in found)
    assert [t.atol for t in found[:3]] == sorted(t.atol for t in found[:3])


def test_an_unknown_dtype_lists_the_known_ones():
    with pytest.raises(InputError, match="int8: no such dtype; there are float64, float32"):
        medusa_manifests.tolerance("int8")
