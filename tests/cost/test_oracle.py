"""Each oracle of the cost contract: silent on a lawful ledger, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from medusa_oracles import judge
from medusa_spec import Trace
from medusa_spec.coordinate import CostProfile, Workload
from medusa_spec.cost import COUNTS, RATES
from medusa_spec.registry import of_contract


def plus(name: str, by: int = 1) -> Callable[[Trace], dict[str, Any]]:
    return lambda trace: {f"cost.{name}": trace[f"cost.{name}"] + by}


def claimed(**changes: Any) -> Callable[[Trace], dict[str, Any]]:
    return lambda trace: {"cost.claim": {**trace["cost.claim"], **changes}}


CASES: dict[str, Callable[[Trace], dict[str, Any]]] = {
    "COST.HEAD_PARAMETERS": plus("head_parameters"),
    "COST.ALL_ROWS_OR_TERMINAL": lambda _: {"cost.head_rows": np.array(1)},
    "COST.HEAD_FLOPS": lambda _: {"cost.projection_flops": np.array(0)},
    "COST.LM_PROJECTION": plus("lm_flops", -1),
    "COST.DENSE_PAIRS": lambda t: {"cost.dense_pairs": t["cost.allowed_pairs"]},
    "COST.ALLOWED_PAIRS": lambda t: {"cost.allowed_pairs": t["cost.dense_pairs"]},
    "COST.LOGITS": plus("logit_elements"),
    "COST.PATH_LOGITS": lambda t: {"cost.path_logit_elements": t["cost.logit_elements"]},
    "COST.KV_STAGED": lambda t: {"cost.staged_bytes": 8 * t["cost.staged_bytes"]},
    "COST.KV_COMMITTED": lambda _: {"cost.committed_bytes": np.array(0)},
    "COST.SPEEDUP": lambda t: {"cost.speedup": 1 / t["cost.speedup"]},
    "COST.BREAK_EVEN": lambda t: {"cost.breaks_even": ~t["cost.breaks_even"]},
    "COST.PROFILE_EVIDENCE": claimed(profile="measured"),
    "COST.BATCH_ONE": claimed(batch=2),
}


@pytest.fixture
def trace(workload: Workload, counting: Callable[[Workload], Trace]) -> Trace:
    return counting(workload)


def of(trace: Trace, code: str, changes: dict[str, Any]) -> list[Any]:
    arrays = {**trace.arrays, **{k: v for k, v in changes.items() if k != "cost.claim"}}
    documents = {**trace.documents, **{k: v for k, v in changes.items() if k == "cost.claim"}}
    changed = replace(trace, arrays=arrays, documents=documents)
    return [finding for finding in judge(changed).findings if finding.code == code]


def test_every_invariant_has_a_case() -> None:
    assert set(CASES) == {invariant.code for invariant in of_contract("cost")}


@pytest.mark.parametrize("code", CASES)
def test_oracle(code: str, trace: Trace, prove: Any) -> None:
    prove(code, trace, CASES[code](trace))


@pytest.mark.parametrize("name", COUNTS)
def test_no_count_can_be_another_by_one(name: str, trace: Trace) -> None:
    for by in (1, -1):
        changed = replace(trace, arrays={**trace.arrays, **plus(name, by)(trace)})
        assert judge(changed).findings


@pytest.mark.parametrize("name", ["overhead", "speedup"])
def test_no_rate_can_be_another(name: str, trace: Trace) -> None:
    (finding,) = of(trace, "COST.SPEEDUP", {f"cost.{name}": trace[f"cost.{name}"] * 1.01})
    assert finding.message == f"{name} is not what the profile says"


def test_a_count_is_named_with_what_it_must_be(trace: Trace) -> None:
    # Five rows behind seven: 5 * 12 pairs, of which the tree's 25 are 1 + 2 + 2 + 3 + 3 by right.
    (finding,) = of(trace, "COST.DENSE_PAIRS", {"cost.dense_pairs": np.array(46)})
    assert (finding.expected, finding.observed) == (60, 46)
    assert finding.message == "dense_pairs is not every packed row against every row of the cache"


@pytest.mark.parametrize(
    ("declared", "said", "logits", "expected", "observed"),
    [
        ("all", 1, None, 5, 1),
        ("terminal", 5, None, 1, 5),
        # As it is said, and the heads' logits are three heads' of eleven tokens.
        ("all", 5, 1 * 3 * 11, 5, 1),
        ("terminal", 1, 5 * 3 * 11, 1, 5),
    ],
)
def test_rows_of_heads_are_those_declared_and_those_counted(
    workload: Workload,
    counting: Callable[[Workload], Trace],
    declared: Any,
    said: int,
    logits: int | None,
    expected: int,
    observed: int,
) -> None:
    trace = counting(replace(workload, head_rows=declared))
    changes = {"cost.head_rows": np.array(said)}
    if logits is not None:
        changes["cost.head_logit_elements"] = np.array(logits)
    (finding,) = of(trace, "COST.ALL_ROWS_OR_TERMINAL", changes)
    assert (finding.expected, finding.observed) == (expected, observed)


def test_without_heads_there_is_nothing_to_run_them_on(
    workload: Workload, counting: Callable[[Workload], Trace]
) -> None:
    bare = counting(replace(workload, heads=0, paths=(), published=1, profile=None))
    judgement = judge(bare)
    assert judgement.findings == ()
    assert "COST.ALL_ROWS_OR_TERMINAL" in judgement.executed


def test_without_a_profile_nothing_is_said_of_speed(
    workload: Workload, counting: Callable[[Workload], Trace]
) -> None:
    trace = counting(replace(workload, profile=None))
    executed = judge(trace).executed
    assert not {"COST.SPEEDUP", "COST.BREAK_EVEN"} & set(executed)
    code = "COST.PROFILE_EVIDENCE"
    (finding,) = of(trace, code, {"cost.speedup": np.array(2.0)})
    assert finding.message == "there is a speedup, and nothing that it was divided by"
    (finding,) = of(trace, code, {"cost.overhead": np.array(1.0)})
    assert finding.message == "there is an overhead, and nothing that it was divided by"
    (finding,) = of(trace, code, {"cost.breaks_even": np.array(False)})
    assert finding.message == "there is a verdict, and nothing that it was divided by"
    (finding,) = of(trace, code, claimed(profile="derived")(trace))
    assert (finding.expected, finding.observed) == (None, "derived")
    (finding,) = of(trace, code, claimed(counts="measured")(trace))
    assert (finding.expected, finding.observed) == ("derived", "measured")


@pytest.mark.parametrize("extra", [{"evidence": "measured"}, {"speedup": "2.8x"}])
def test_a_claim_says_what_its_form_has_and_no_more(trace: Trace, extra: dict[str, str]) -> None:
    (finding,) = of(trace, "COST.PROFILE_EVIDENCE", claimed(**extra)(trace))
    ((name, said),) = extra.items()
    assert finding.message == f"the claim carries {name}, which its form does not have"
    assert finding.observed == said


@pytest.mark.parametrize("evidence", ["derived", "measured", "source-reported"])
def test_evidence_is_that_of_the_profile(
    workload: Workload, counting: Callable[[Workload], Trace], evidence: Any
) -> None:
    assert workload.profile is not None
    trace = counting(replace(workload, profile=replace(workload.profile, evidence=evidence)))
    assert judge(trace).findings == ()
    assert len(of(trace, "COST.PROFILE_EVIDENCE", claimed(profile="synthetic")(trace))) == 1


@pytest.mark.parametrize(
    ("profile", "pays"),
    [
        ((1.0, 2.0, 4, 9), True),
        ((1.0, 2.0, 4, 7), False),
        # Exactly at par: 2 tokens for 2 steps.
        ((1.0, 2.0, 4, 8), False),
        ((0.5, 1.0, 1, 2), False),
        # One token a round, as an ordinary step publishes, pays where the round is cheaper.
        ((1.0, 0.5, 3, 3), True),
    ],
)
def test_break_even_is_strict(
    workload: Workload,
    counting: Callable[[Workload], Trace],
    profile: tuple[float, float, int, int],
    pays: bool,
) -> None:
    baseline, round_, rounds, published = profile
    made = CostProfile(baseline, round_, "made up", rounds, published, "synthetic")
    trace = counting(replace(workload, profile=made))
    assert trace["cost.breaks_even"] == pays
    assert judge(trace).findings == ()
    assert len(of(trace, "COST.BREAK_EVEN", {"cost.breaks_even": np.array(not pays)})) == 1


@pytest.mark.parametrize(
    ("costs", "round_"),
    [
        # In decimals `.7 / .1` is 7; in doubles it is a little less.
        ((0.1, 0.7), (1, 7)),
        # 7 / 3 and .7 / .3 are one double, while 7 * .3 is more than 3 * .7.
        ((0.3, 0.7), (3, 7)),
        # Exactly at par, but 7 / 3 is no double, and three times it is rounded again.
        ((3.0, 7.0), (3, 7)),
    ],
)
def test_where_rounding_alone_decides_nothing_is_judged(
    workload: Workload,
    counting: Callable[[Workload], Trace],
    costs: tuple[float, float],
    round_: tuple[int, int],
) -> None:
    deep = replace(workload, heads=6, paths=tuple((0,) * depth for depth in range(1, 7)))
    trace = counting(replace(deep, profile=CostProfile(*costs, "s", *round_, "synthetic")))
    for answer in (True, False):
        arrays = {**trace.arrays, "cost.breaks_even": np.array(answer)}
        judgement = judge(replace(trace, arrays=arrays))
        assert "COST.BREAK_EVEN" not in judgement.executed
        assert judgement.findings == ()


def test_a_trace_without_a_workload_is_not_judged(trace: Trace) -> None:
    bare = replace(trace, coordinate=replace(trace.coordinate, cost=None))
    assert judge(bare).executed == ()


def test_what_is_no_number_is_said(trace: Trace) -> None:
    (finding,) = of(trace, "COST.LM_PROJECTION", {"cost.lm_flops": np.zeros(2)})
    assert finding.message.startswith("what was observed is of no form that can be judged")


def test_a_ledger_that_shows_less_is_judged_for_less(trace: Trace) -> None:
    kept = {"cost.dense_pairs": trace["cost.dense_pairs"]}
    judgement = judge(replace(trace, arrays=kept, documents={}))
    assert judgement.executed == ("COST.DENSE_PAIRS",)
    assert set(trace.arrays) == {f"cost.{name}" for name in (*COUNTS, *RATES)}
