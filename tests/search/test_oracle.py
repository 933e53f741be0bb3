"""Each oracle of the search contract: silent on a lawful search, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import medusa_manifests
from medusa_oracles import judge
from medusa_spec import Trace
from medusa_spec.coordinate import Calibration
from medusa_spec.registry import of_contract

# Admitted: 0 of .5, 1 of .3, 0 0 of .25, 1 0 of .15; left: 0 1 of .1.
ROWS = ((0.5, 0.3), (0.5, 0.2))


def exchanged(values: Any, one: int, other: int) -> tuple[Any, ...]:
    order = [*range(len(values))]
    order[one], order[other] = other, one
    return tuple(values[place] for place in order)


def recorded(trace: Trace, node: int, **changes: Any) -> dict[str, Any]:
    decisions = [*trace["search.decisions"]]
    decisions[node] = {**decisions[node], **changes}
    return {"search.decisions": decisions}


CASES: dict[str, Callable[[Trace], dict[str, Any]]] = {
    "SEARCH.INCREMENT": lambda t: {"search.increments": t["search.increments"].cumsum(axis=1)},
    # .5 + .5 for .5 * .5.
    "SEARCH.PATH_WEIGHT": lambda t: {"search.weights": np.array([0.5, 0.3, 1.0, 0.15])},
    # The leaves alone, .25 and .15.
    "SEARCH.OBJECTIVE": lambda _: {"search.objective": np.array(0.4)},
    "SEARCH.PREFIX_CLOSED": lambda t: {"search.paths": exchanged(t["search.paths"], 0, 2)},
    "SEARCH.FRONTIER_BEST": lambda t: {"search.paths": exchanged(t["search.paths"], 1, 2)},
    "SEARCH.DECISIONS": lambda t: recorded(t, 2, frontier=5),
    "SEARCH.BUDGET": lambda t: {"search.paths": t["search.paths"][:3]},
    "SEARCH.OPTIMAL": lambda t: {"search.paths": (*t["search.paths"][:3], (0, 1))},
    "SEARCH.VERSIONED": lambda t: {
        "search.identity": {k: v for k, v in t["search.identity"].items() if k != "policy"}
    },
    "SEARCH.NOT_SPEED": lambda t: {
        "search.claim": {**t["search.claim"], "quantity": "tokens-per-second"}
    },
}


@pytest.fixture(scope="module")
def trace(calibrated: Callable[..., Calibration], searching: Callable[..., Trace]) -> Trace:
    return searching(calibrated(*ROWS, nodes=4))


def test_every_invariant_has_a_case() -> None:
    assert set(CASES) == {invariant.code for invariant in of_contract("search")}


@pytest.mark.parametrize("code", CASES)
def test_oracle(code: str, trace: Trace, prove: Any) -> None:
    prove(code, trace, CASES[code](trace))


def test_what_was_admitted_by_hand(trace: Trace) -> None:
    assert trace["search.paths"] == ((0,), (1,), (0, 0), (1, 0))
    assert trace["search.objective"] == pytest.approx(0.5 + 0.3 + 0.25 + 0.15)


def of(trace: Trace, code: str, changes: dict[str, Any]) -> list[Any]:
    arrays = {**trace.arrays, **{k: v for k, v in changes.items() if isinstance(v, np.ndarray)}}
    documents = {**trace.documents, **{k: v for k, v in changes.items() if k not in arrays}}
    changed = replace(trace, arrays=arrays, documents=documents)
    return [finding for finding in judge(changed).findings if finding.code == code]


@pytest.mark.parametrize(
    ("paths", "node", "said"),
    [
        (((0,), (0, 0), (1, 0), (1,)), 2, "[1, 0] was admitted before its parent [1]"),
        (((0,), (0,), (1,), (0, 0)), 1, "[0] was admitted before"),
        (((), (0,), (1,), (0, 0)), 0, "[] is the root"),
        (((0,), (2,), (1,), (0, 0)), 1, "[2] is no path of 2 heads of 2 ranks"),
        (((0,), (-1,), (1,), (0, 0)), 1, "[-1] is no path of 2 heads of 2 ranks"),
        (((0,), (0, 0), (0, 0, 0), (1,)), 2, "[0, 0, 0] is no path of 2 heads of 2 ranks"),
    ],
)
def test_a_path_that_cannot_be_admitted_is_named(
    trace: Trace, paths: tuple[Any, ...], node: int, said: str
) -> None:
    (finding,) = of(trace, "SEARCH.PREFIX_CLOSED", {"search.paths": paths})
    assert (finding.message, finding.where) == (said, {"node": node})


def test_a_heavier_path_that_was_passed_over_is_named(trace: Trace) -> None:
    (finding,) = of(trace, "SEARCH.FRONTIER_BEST", CASES["SEARCH.FRONTIER_BEST"](trace))
    assert finding.where == {"node": 1}
    assert (finding.expected, finding.observed) == ([1], [0, 0])
    assert finding.message.endswith("was admitted before a heavier one, [1] of 0.3")


def test_equal_factors_go_by_canonical_order_and_equal_products_may_be_rounded(
    calibrated: Callable[..., Calibration], searching: Callable[..., Trace]
) -> None:
    """`0 1` and `1 0` weigh .25 * .5 and .5 * .25; `0 0` and `1 0` the same factors."""
    code = "SEARCH.FRONTIER_BEST"
    products = searching(calibrated((0.5, 0.25), (0.5, 0.25), nodes=5))
    assert products["search.paths"] == ((0,), (1,), (0, 0), (0, 1), (1, 0))
    turned = exchanged(products["search.paths"], 3, 4)
    silent = {name: v for name, v in products.documents.items() if name != "search.decisions"}
    assert of(replace(products, documents=silent), code, {"search.paths": turned}) == []
    # The record says that both weigh the same, and so speaks against the order.
    record = exchanged(products["search.decisions"], 3, 4)
    first = {**record[3], "runner_up": (0, 1), "runner_up_weight": record[3]["weight"]}
    changes = {"search.paths": turned, "search.decisions": (*record[:3], first, record[4])}
    (finding,) = of(products, code, changes)
    assert (finding.where, finding.expected, finding.observed) == ({"node": 3}, [0, 1], [1, 0])

    factors = searching(calibrated((0.25, 0.25), (0.5, 0.25), nodes=4))
    assert factors["search.paths"] == ((0,), (1,), (0, 0), (1, 0))
    silent = {name: v for name, v in factors.documents.items() if name != "search.decisions"}
    for one, other in ((0, 1), (2, 3)):
        turned = exchanged(factors["search.paths"], one, other)
        (finding,) = of(replace(factors, documents=silent), code, {"search.paths": turned})
        assert finding.message == "of paths that weigh the same, the first was not admitted first"


def test_paths_of_no_weight_go_by_canonical_order(
    calibrated: Callable[..., Calibration], searching: Callable[..., Trace]
) -> None:
    nothing = searching(calibrated((0.5, 0.0), (0.25, 0.0), nodes=4))
    assert nothing["search.paths"] == ((0,), (0, 0), (1,), (0, 1))
    silent = {name: v for name, v in nothing.documents.items() if name != "search.decisions"}
    turned = exchanged(nothing["search.paths"], 2, 3)
    (finding,) = of(
        replace(nothing, documents=silent), "SEARCH.FRONTIER_BEST", {"search.paths": turned}
    )
    assert (finding.expected, finding.observed) == ([1], [0, 1])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"path": (1, 0)}, "another path is recorded than was admitted"),
        ({"runner_up": (0, 1)}, "what is recorded as left is not the heaviest that was left"),
        ({"runner_up": None}, "what is recorded as left is not the heaviest that was left"),
        ({"runner_up": (5,)}, "what is recorded as left is not the heaviest that was left"),
        ({"weight": 0.5}, "a weight in the record of [0, 0] is not its path's"),
        ({"runner_up_weight": 0.2}, "a weight in the record of [0, 0] is not its path's"),
    ],
)
def test_a_record_that_is_wrong_is_named(trace: Trace, changes: dict[str, Any], said: str) -> None:
    (finding,) = of(trace, "SEARCH.DECISIONS", recorded(trace, 2, **changes))
    assert (finding.message, finding.where) == (said, {"node": 2})


def test_a_record_has_as_many_decisions_as_there_are_paths(trace: Trace) -> None:
    few = {"search.decisions": trace["search.decisions"][:-1]}
    (finding,) = of(trace, "SEARCH.DECISIONS", few)
    assert (finding.expected, finding.observed) == (4, 3)


def test_nothing_is_left_behind_the_last_path(
    calibrated: Callable[..., Calibration], searching: Callable[..., Trace]
) -> None:
    whole = searching(calibrated((0.5, 0.25), nodes=9))
    assert whole["search.decisions"][-1]["runner_up"] is None
    assert judge(whole).findings == ()
    made_up = recorded(whole, 1, runner_up=(0,), runner_up_weight=0.0)
    (finding,) = of(whole, "SEARCH.DECISIONS", made_up)
    assert (finding.expected, finding.observed) == (None, (0,))


@pytest.mark.parametrize("word", ["model", "data_set", "prompts", "policy", "nodes"])
def test_each_word_of_an_identity_is_read(trace: Trace, word: str) -> None:
    other = {**trace["search.identity"], word: "another"}
    (finding,) = of(trace, "SEARCH.VERSIONED", {"search.identity": other})
    assert finding.message == f"the tree does not say for which {word} it was searched"
    more = {**trace["search.identity"], "revision": "of its own"}
    assert of(trace, "SEARCH.VERSIONED", {"search.identity": more}) == []


@pytest.mark.parametrize(
    "change", [{"evidence": "measured"}, {"assumption": None}, {"speedup": 2.3}]
)
def test_a_claim_has_its_words_and_no_other(trace: Trace, change: dict[str, Any]) -> None:
    claim = {**trace["search.claim"], **change}
    (finding,) = of(trace, "SEARCH.NOT_SPEED", {"search.claim": claim})
    assert finding.observed == claim


def test_what_is_shown_of_a_search_is_judged_alone(trace: Trace) -> None:
    def executed(*names: str) -> set[str]:
        arrays = {n: v for n, v in trace.arrays.items() if n.removeprefix("search.") in names}
        given = {n: v for n, v in trace.documents.items() if n.removeprefix("search.") in names}
        judgement = judge(replace(trace, arrays=arrays, documents=given))
        assert judgement.findings == ()
        return {code.removeprefix("SEARCH.") for code in judgement.executed}

    alone = {"PREFIX_CLOSED", "FRONTIER_BEST", "BUDGET", "OPTIMAL"}
    assert executed("paths") == alone
    assert executed("paths", "weights") == {*alone, "PATH_WEIGHT"}
    assert executed("paths", "objective") == {*alone, "OBJECTIVE"}
    assert executed("paths", "decisions") == {*alone, "DECISIONS"}
    assert executed("identity") == {"VERSIONED"}
    assert executed("increments", "claim") == {"INCREMENT", "NOT_SPEED"}


def test_only_small_sets_are_tried_one_by_one(searching: Callable[..., Trace]) -> None:
    for name, exhausted in (("two-heads", True), ("equal-increments", True), ("ten-paths", False)):
        calibration = medusa_manifests.load(name).search
        assert calibration is not None
        judgement = judge(searching(calibration))
        assert ("SEARCH.OPTIMAL" in judgement.executed) == exhausted
        assert {f.code for f in judgement.findings} <= {"SEARCH.VERSIONED"}


def test_a_coordinate_without_a_calibration_has_no_search(trace: Trace) -> None:
    bare = replace(trace, coordinate=replace(trace.coordinate, search=None))
    assert judge(bare).executed == ()


def test_increments_of_another_size_are_said(trace: Trace) -> None:
    (finding,) = of(trace, "SEARCH.PATH_WEIGHT", {"search.increments": np.zeros((2, 3))})
    assert "increments are (2, 3); the table's are (2, 2)" in finding.message
