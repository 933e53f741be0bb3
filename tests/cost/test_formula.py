"""A ledger a second and a third time: row by row, and by what the engine's own round ran."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa_conformance.cost_strategies import workloads
from medusa_conformance.strategies import trees
from medusa_oracles.cost import (
    derive_break_even,
    derive_counts,
    derive_overhead,
    derive_speedup,
)
from medusa_reference_engine.cost import CostStage
from medusa_spec.coordinate import CostProfile, Workload
from medusa_spec.cost import COUNTS, RATES, CostLedger

SHORT = st.tuples(st.integers(1, 3), st.integers(0, 3)).flatmap(lambda s: trees(*s))


def shown(ledger: CostLedger) -> dict[str, Any]:
    """A ledger as a plain document, without what stays away."""
    rates = {name: getattr(ledger, name) for name in RATES}
    counts = {name: getattr(ledger, name) for name in COUNTS}
    return counts | {name: rate.item() for name, rate in rates.items() if rate is not None}


@settings(max_examples=60, deadline=None)
@given(workloads(SHORT))
def test_three_roads_lead_to_every_count(literal: ModuleType, workload: Workload) -> None:
    # A prefix is walked along row by row.
    workload = replace(workload, prefix=min(workload.prefix, 2048))
    expected = literal.ledger(workload)
    counts = derive_counts(workload)
    assert list(counts) == list(COUNTS)
    assert {name: expected[name] for name in COUNTS} == counts
    seen = shown(CostStage().ledger(workload))
    assert {name: seen[name] for name in COUNTS} == counts
    assert seen.keys() == expected.keys()


@settings(max_examples=100, deadline=None)
@given(workloads(SHORT).filter(lambda w: w.profile is not None))
def test_rates_are_those_of_exact_fractions(literal: ModuleType, workload: Workload) -> None:
    """Costs are quarters, so only the ratios are rounded."""
    profile = workload.profile
    assert profile is not None
    exact = literal.rates(profile)
    stage = CostStage()
    for overhead, speedup in (
        (derive_overhead(profile), derive_speedup(profile)),
        (stage.overhead(profile), stage.speedup(profile)),
    ):
        assert overhead == pytest.approx(exact["overhead"], rel=1e-14)
        assert speedup == pytest.approx(exact["speedup"], rel=1e-14)
    assert derive_break_even(profile) == stage.breaks_even(profile) == exact["breaks_even"]


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({"projection": "shared"}, {"head_parameters", "head_bytes"}),
        (
            {"head_rows": "terminal"},
            {"head_rows", "residual_flops", "projection_flops", "head_logit_elements"},
        ),
        ({"head_blocks": 1}, {"head_parameters", "head_bytes", "residual_flops"}),
        ({"prefix": 8}, {"dense_pairs", "allowed_pairs"}),
        ({"layers": 3}, {"staged_bytes", "committed_bytes"}),
        ({"kv_heads": 4}, {"staged_bytes", "committed_bytes"}),
        ({"attention_heads": 8}, {"staged_bytes", "committed_bytes"}),
        ({"scalar_bytes": 2}, {"head_bytes", "staged_bytes", "committed_bytes"}),
        ({"published": 3}, {"committed_bytes"}),
        ({"intermediate": 48}, set()),
        ({"profile": None}, set()),
        # The same five rows as one chain: fewer paths, and each row sees all before it.
        ({"paths": ((0,), (0, 0), (0, 0, 0)), "published": 1}, None),
    ],
)
def test_a_size_changes_what_it_is_a_part_of_and_nothing_else(
    workload: Workload, changes: dict[str, Any], changed: set[str] | None
) -> None:
    """For the formulas and for the engine alike."""
    other = replace(workload, **changes)
    for counts in (derive_counts, lambda w: shown(CostStage().ledger(w))):
        before, after = counts(workload), counts(other)
        found = {name for name in COUNTS if before[name] != after[name]}
        if changed is None:
            assert {"dense_pairs", "allowed_pairs", "path_logit_elements"} <= found
        else:
            assert found == changed


def test_a_chain_has_no_pair_to_skip_but_those_ahead(workload: Workload) -> None:
    chain = replace(workload, paths=((0,), (0, 0), (0, 0, 0)))
    counts = derive_counts(chain)
    assert counts["dense_pairs"] - counts["allowed_pairs"] == 0 + 1 + 2 + 3
    assert counts["path_logit_elements"] == counts["logit_elements"] == 4 * 11


def test_a_root_alone_is_an_ordinary_step(workload: Workload) -> None:
    step = derive_counts(replace(workload, paths=(), published=1))
    assert step["dense_pairs"] == step["allowed_pairs"] == 7 + 1
    assert step["logit_elements"] == step["path_logit_elements"] == 11
    assert step["staged_bytes"] == step["committed_bytes"] == 2 * 2 * 2 * 4 * 4
    assert step["head_rows"] == 1


def test_a_slower_round_and_a_shorter_prefix_of_matches_both_lose() -> None:
    """The two ways in which a wider tree fails (0x07D), with costs that nobody measured."""
    narrow = CostProfile(1.0, 1.5, "made up", 10, 18, "synthetic")
    idle = replace(narrow, round=1.9)
    dear = replace(narrow, round=2.5, published=24)
    assert derive_break_even(narrow)
    assert not derive_break_even(idle)
    assert not derive_break_even(dear)
    assert derive_speedup(dear) < 1 < derive_speedup(narrow)
