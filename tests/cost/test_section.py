"""What is asked of an engine, and what comes back from a file of a ledger that it wrote itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa_manifests
from medusa_conformance.cost import cost, otherwise
from medusa_conformance.cost_strategies import workloads
from medusa_conformance.runner import Setting, line_of, reference_factory
from medusa_conformance.strategies import trees
from medusa_oracles import judge
from medusa_oracles.cost import derive_counts
from medusa_reference_engine.cost import CostStage
from medusa_spec import Coordinate
from medusa_spec.coordinate import Workload
from medusa_spec.cost import COUNTS, CostLedger
from medusa_spec.loading import coordinate_from
from medusa_spec.registry import of_contract
from medusa_spec.tracefile import SUFFIXES, read_trace, write_trace

SETTING = Setting("cpu", "float64")
DRAWN = st.tuples(st.integers(1, 3), st.integers(0, 3)).flatmap(lambda s: workloads(trees(*s)))


@settings(max_examples=50, deadline=None)
@given(DRAWN)
def test_what_is_asked_before_is_lawful_and_another_ledger(workload: Workload) -> None:
    """Every count of a workload that it shares with the other one could be a constant."""
    other = otherwise(workload)
    base = medusa_manifests.load("cost-shared-heads")
    for given_ in (workload, other):
        planned = replace(base, cost=given_, expected={})
        assert coordinate_from(planned.document(), "drawn") == planned
    before, after = derive_counts(other), derive_counts(workload)
    telling = {"lm_flops", "dense_pairs", "allowed_pairs", "logit_elements"}
    assert all(before[name] != after[name] for name in telling)
    assert other.layers != workload.layers
    assert (other.head_rows, other.projection) != (workload.head_rows, workload.projection)


def test_an_engine_that_knows_one_ledger_is_found_out() -> None:
    """Every count is that of the planned workload, whatever is asked."""
    coordinate = medusa_manifests.load("cost-nine-row")
    assert coordinate.cost is not None
    known = CostStage().ledger(coordinate.cost)

    class Constant:
        def __init__(self, given_: Coordinate, capacity: int) -> None:
            pass

        def cost(self, workload: Workload) -> Any:
            return known

    found = [judge(trace) for trace in line_of(Constant, coordinate, SETTING).run(("cost",))]
    assert len(found) == 2
    heard = {finding.code for finding in found[1].findings}
    # Its profile is gone, and one sequence is one sequence.
    rest = {"COST.SPEEDUP", "COST.BREAK_EVEN", "COST.BATCH_ONE"}
    assert heard == {rule.code for rule in of_contract("cost")} - rest
    assert found[0].findings == ()


def test_a_coordinate_without_a_workload_asks_for_nothing() -> None:
    line = line_of(reference_factory(SETTING), medusa_manifests.load("six-node"), SETTING)
    assert [*cost(line)] == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_ledger_in_a_file_is_judged_as_it_is_shown(
    workload: Workload, coordinate: Callable[..., Coordinate], tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"ledger{suffix}"
    planned = replace(coordinate(()), cost=workload)
    ledger = CostStage().ledger(workload)
    write_trace(file, planned, {"cost": ledger}, dtype="float64")
    within = medusa_manifests.tolerances("float64")
    read = read_trace(file).trace(*within)
    assert read.coordinate == planned
    assert {name: read[f"cost.{name}"].item() for name in COUNTS} == derive_counts(workload)
    judgement = judge(read)
    assert judgement.findings == ()
    assert set(judgement.executed) == {rule.code for rule in of_contract("cost")}
    write_trace(file, planned, {"cost": replace(ledger, staged_bytes=1)}, dtype="float64")
    findings = judge(read_trace(file).trace(*within)).findings
    assert [finding.code for finding in findings] == ["COST.KV_STAGED"]


def scalars_of_two_bytes(workload: Workload, ledger: CostLedger) -> CostLedger:
    halved = {name: getattr(ledger, name) * 2 // workload.scalar_bytes for name in BYTES}
    return replace(ledger, **halved)


def heads_of_128_channels(workload: Workload, ledger: CostLedger) -> CostLedger:
    kept = ("staged_bytes", "committed_bytes")
    return replace(
        ledger, **{name: getattr(ledger, name) * 128 // workload.head_dim for name in kept}
    )


def one_block_a_head(workload: Workload, ledger: CostLedger) -> CostLedger:
    return replace(ledger, residual_flops=ledger.residual_flops // max(1, workload.head_blocks))


def profiles_of_four_rounds(workload: Workload, ledger: CostLedger) -> CostLedger:
    if workload.profile is None:
        return ledger
    return replace(ledger, speedup=workload.profile.published / 4 / ledger.overhead)


def baseline_steps_are_the_unit(workload: Workload, ledger: CostLedger) -> CostLedger:
    return ledger if workload.profile is None else replace(ledger, overhead=workload.profile.round)


def profiles_are_made_up(workload: Workload, ledger: CostLedger) -> CostLedger:
    if workload.profile is None:
        return ledger
    return replace(ledger, claim={**ledger.claim, "profile": "synthetic"})


def masks_of_four_rows(workload: Workload, ledger: CostLedger) -> CostLedger:
    rows = [(), *workload.paths]
    seen = sum(min(len(path) + 1, 4) for path in rows)
    return replace(ledger, allowed_pairs=len(rows) * workload.prefix + seen)


def counts_in_single_precision(workload: Workload, ledger: CostLedger) -> CostLedger:
    return replace(ledger, **{name: int(np.float32(getattr(ledger, name))) for name in COUNTS})


BYTES = ("head_bytes", "staged_bytes", "committed_bytes")


@pytest.mark.parametrize(
    ("habit", "code"),
    [
        (scalars_of_two_bytes, "COST.KV_STAGED"),
        (heads_of_128_channels, "COST.KV_STAGED"),
        (one_block_a_head, "COST.HEAD_FLOPS"),
        (profiles_of_four_rounds, "COST.SPEEDUP"),
        (baseline_steps_are_the_unit, "COST.SPEEDUP"),
        (profiles_are_made_up, "COST.PROFILE_EVIDENCE"),
        (masks_of_four_rows, "COST.ALLOWED_PAIRS"),
        (counts_in_single_precision, "COST.HEAD_FLOPS"),
    ],
)
def test_a_habit_in_place_of_what_is_declared_is_found_on_frozen_sizes(
    habit: Callable[[Workload, CostLedger], CostLedger], code: str
) -> None:
    class Habitual:
        def __init__(self, given_: Coordinate, capacity: int) -> None:
            pass

        def cost(self, workload: Workload) -> CostLedger:
            return habit(workload, CostStage().ledger(workload))

    coordinate = medusa_manifests.load("cost-odd-sizes")
    traces = line_of(Habitual, coordinate, SETTING).run(("cost",))
    heard = {finding.code for trace in traces for finding in judge(trace).findings}
    assert code in heard
