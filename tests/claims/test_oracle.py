"""Each oracle of the claims: silent on lawful ones, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from medusa_oracles import judge
from medusa_spec import Trace
from medusa_spec.claims import Facts
from medusa_spec.registry import of_contract

Change = Callable[[Trace], dict[str, Any]]


def figure(name: str, *without: str, **changes: Any) -> Change:
    """Figures of which one is published otherwise."""

    def change(trace: Trace) -> dict[str, Any]:
        entries = [
            {k: v for k, v in {**entry, **changes}.items() if k not in without}
            if entry["name"] == name
            else entry
            for entry in trace["claims.figures"]
        ]
        return {"claims.figures": entries}

    return change


def row(part: str, key: str, name: str, *without: str, **changes: Any) -> Change:
    """Another part of the claims, of which one row is otherwise."""

    def change(trace: Trace) -> dict[str, Any]:
        rows = [
            {k: v for k, v in {**entry, **changes}.items() if k not in without}
            if entry[key] == name
            else entry
            for entry in trace[f"claims.{part}"]
        ]
        return {f"claims.{part}": rows}

    return change


def fewer(part: str) -> Change:
    return lambda trace: {f"claims.{part}": trace[f"claims.{part}"][1:]}


def more(part: str, **entry: Any) -> Change:
    return lambda trace: {f"claims.{part}": [*trace[f"claims.{part}"], entry]}


def again(part: str) -> Change:
    return lambda trace: {f"claims.{part}": trace[f"claims.{part}"][:1] + trace[f"claims.{part}"]}


CASES: list[tuple[str, Change]] = [
    ("CLAIMS.EVIDENCE", figure("own", evidence="measured")),
    ("CLAIMS.EVIDENCE", figure("time", evidence="derived")),
    ("CLAIMS.EVIDENCE", figure("slot", evidence="measured")),
    ("CLAIMS.EVIDENCE", figure("guess", evidence="derived")),
    ("CLAIMS.EVIDENCE", figure("quoted", evidence=None)),
    ("CLAIMS.EVIDENCE", figure("own", "evidence")),
    ("CLAIMS.EVIDENCE", figure("own", "formula")),
    ("CLAIMS.EVIDENCE", figure("mean", inputs=["quoted"])),
    ("CLAIMS.EVIDENCE", figure("guess", "purpose")),
    ("CLAIMS.EVIDENCE", figure("time", "machine")),
    ("CLAIMS.EVIDENCE", figure("time", command="another")),
    ("CLAIMS.EVIDENCE", figure("time", sample={"size": 4, "of": "rounds"})),
    ("CLAIMS.EVIDENCE", figure("time", "sample")),
    ("CLAIMS.EVIDENCE", figure("guess", note="measured on our card: 2.8x")),
    ("CLAIMS.EVIDENCE", figure("own", machine="m")),
    ("CLAIMS.EVIDENCE", figure("quoted", source="a")),
    ("CLAIMS.FIGURES_KEPT", fewer("figures")),
    ("CLAIMS.FIGURES_KEPT", again("figures")),
    ("CLAIMS.FIGURES_KEPT", more("figures", name="invented", value=2.3)),
    ("CLAIMS.FIGURES_KEPT", figure("slot", value=5.0)),
    ("CLAIMS.FIGURES_KEPT", figure("time", unit="s")),
    ("CLAIMS.FIGURES_KEPT", figure("own", quantity="speedup")),
    ("CLAIMS.FIGURES_KEPT", figure("own", "value")),
    ("CLAIMS.SYNTHETIC_IS_NOT_MEASURED", figure("guess", evidence="measured")),
    ("CLAIMS.SYNTHETIC_IS_NOT_MEASURED", figure("guess", local=True)),
    ("CLAIMS.SYNTHETIC_IS_NOT_MEASURED", figure("hoped", local=True)),
    ("CLAIMS.SYNTHETIC_IS_NOT_MEASURED", figure("hoped", evidence="measured")),
    ("CLAIMS.NO_BORROWED_SPEEDUP", figure("quoted", evidence="measured")),
    ("CLAIMS.NO_BORROWED_SPEEDUP", figure("quoted", local=True)),
    ("CLAIMS.NO_BORROWED_SPEEDUP", figure("mean", local=True)),
    ("CLAIMS.NO_BORROWED_SPEEDUP", figure("mean", sources=["a"])),
    ("CLAIMS.NO_BORROWED_SPEEDUP", figure("all", "sources")),
    ("CLAIMS.NO_BORROWED_SPEEDUP", figure("quoted", sources=["b"])),
    ("CLAIMS.BASIS", figure("hoped", rests_on=["measured"])),
    ("CLAIMS.BASIS", figure("own", rests_on=["derived"])),
    ("CLAIMS.BASIS", figure("slot", rests_on=["measured"])),
    ("CLAIMS.BASIS", figure("own", "rests_on")),
    ("CLAIMS.BASIS", figure("own", local=False)),
    ("CLAIMS.BASIS", figure("slot", local=True)),
    ("CLAIMS.BASIS", figure("quoted", "local")),
    ("CLAIMS.POLICY", row("policies", "mode", "fast-typical", claim="greedy-exact")),
    ("CLAIMS.POLICY", row("policies", "mode", "typical-per-path", claim="target-law")),
    ("CLAIMS.POLICY", row("policies", "mode", "nucleus-per-path", claim="target-law")),
    ("CLAIMS.POLICY", row("policies", "mode", "rejection-uncorrected", claim="unproven")),
    ("CLAIMS.POLICY", row("policies", "mode", "rejection", claim="target-law")),
    ("CLAIMS.POLICY", row("policies", "mode", "nucleus", claim="target-law")),
    ("CLAIMS.POLICY", row("policies", "mode", "greedy", claim="target-law")),
    ("CLAIMS.POLICY", row("policies", "mode", "greedy", "claim")),
    ("CLAIMS.POLICY", fewer("policies")),
    ("CLAIMS.POLICY", again("policies")),
    ("CLAIMS.POLICY", more("policies", mode="beam", claim="target-law")),
    ("CLAIMS.POLICY", row("policies", "mode", "nucleus", exact=True)),
    ("CLAIMS.BATCH_ONE", lambda _: {"claims.batch": np.array(8)}),
    ("CLAIMS.BATCH_ONE", lambda _: {"claims.batch": np.array(0)}),
    ("CLAIMS.SCOPE", row("scope", "topic", "lookahead", covered=True)),
    ("CLAIMS.SCOPE", row("scope", "topic", "lookahead", "covered")),
    ("CLAIMS.SCOPE", row("scope", "topic", "dependent-heads", "owner")),
    ("CLAIMS.SCOPE", row("scope", "topic", "dependent-heads", owner="key/value caching")),
    ("CLAIMS.SCOPE", fewer("scope")),
    ("CLAIMS.SCOPE", more("scope", topic="beam-search", owner="", covered=False)),
    ("CLAIMS.SCOPE", more("scope", topic="beam-search", owner="beam search", covered=True)),
    ("CLAIMS.SCOPE", row("scope", "topic", "lookahead", judged_here=True)),
    ("CLAIMS.SCOPE", more("scope", topic="beams", owner="beams", covered=False, judged=True)),
    ("CLAIMS.LINEAGE", row("lineage", "method", "medusa-1", speedup=3.6)),
    ("CLAIMS.LINEAGE", row("lineage", "method", "medusa-2", training="heads-alone")),
    ("CLAIMS.LINEAGE", row("lineage", "method", "specinfer", "publication")),
    ("CLAIMS.LINEAGE", fewer("lineage")),
    ("CLAIMS.LINEAGE", again("lineage")),
    ("CLAIMS.LINEAGE", more("lineage", method="eagle", proposal="parallel-heads")),
]


def test_every_invariant_has_a_case() -> None:
    assert {code for code, _ in CASES} == {i.code for i in of_contract("claims")}


@pytest.mark.parametrize(("code", "change"), CASES)
def test_oracle(code: str, change: Change, trace: Trace, prove: Any) -> None:
    prove(code, trace, change(trace))


@pytest.mark.parametrize(("code", "change"), CASES)
def test_nothing_else_is_heard(code: str, change: Change, trace: Trace, fired: Any) -> None:
    # What is called measured although it is not, and what is not there, is one clause's each.
    assert fired(trace, change(trace)) == {code}


def test_more_may_be_left_to_others(trace: Trace, fired: Any) -> None:
    change = more("scope", topic="beam-search", owner="beam search", covered=False)
    assert fired(trace, change(trace)) == set()


@pytest.mark.parametrize("mode", ["greedy", "one-draw-per-row", "rejection"])
def test_less_than_is_true_may_be_claimed_of_a_mode(mode: str, trace: Trace, fired: Any) -> None:
    assert fired(trace, row("policies", "mode", mode, claim="heuristic")(trace)) == set()


@pytest.mark.parametrize("part", ["figures", "policies", "lineage", "scope"])
def test_the_order_of_a_list_is_nobodys_business(part: str, trace: Trace, fired: Any) -> None:
    assert fired(trace, {f"claims.{part}": trace[f"claims.{part}"][::-1]}) == set()


@pytest.mark.parametrize(
    ("part", "rubbish"),
    [("figures", [3]), ("figures", 7), ("policies", ["greedy"]), ("scope", [None])],
)
def test_rubbish_is_a_breach(part: str, rubbish: Any, trace: Trace, fired: Any) -> None:
    assert fired(trace, {f"claims.{part}": rubbish})


def test_a_finding_says_what_and_where(trace: Trace, by: ModuleType) -> None:
    changed = replace(trace, documents={**trace.documents, **figure("mean", "sources")(trace)})
    (finding,) = judge(changed).findings
    assert finding.where == {"figure": 6}
    assert (finding.expected, finding.observed) == (["a", "b"], [])
    assert finding.message == "mean does not name the sources that it rests on"


@pytest.mark.parametrize(
    ("kinds", "idle"),
    [
        ((), {"EVIDENCE", "SYNTHETIC_IS_NOT_MEASURED", "NO_BORROWED_SPEEDUP", "BASIS", "POLICY"}),
        (("time",), {"SYNTHETIC_IS_NOT_MEASURED", "NO_BORROWED_SPEEDUP", "POLICY"}),
        (("guess",), {"NO_BORROWED_SPEEDUP", "POLICY"}),
        (("quoted",), {"SYNTHETIC_IS_NOT_MEASURED", "POLICY"}),
    ],
)
def test_silence_proves_nothing_of_what_is_not_there(
    kinds: tuple[str, ...], idle: set[str], trace: Trace, by: ModuleType
) -> None:
    kept = tuple(f for f in by.FACTS.figures if f.name in kinds)
    entries = [entry for entry in trace["claims.figures"] if entry["name"] in kinds]
    less = replace(
        trace,
        coordinate=replace(trace.coordinate, claims=Facts(kept, ())),
        documents={**trace.documents, "claims.figures": entries, "claims.policies": []},
    )
    judgement = judge(less, frozenset({"claims"}))
    assert judgement.findings == ()
    every = {i.code for i in of_contract("claims")}
    assert every - {*judgement.executed} == {f"CLAIMS.{name}" for name in idle}


def test_a_coordinate_without_facts_claims_nothing(trace: Trace) -> None:
    without = replace(trace, coordinate=replace(trace.coordinate, claims=None))
    assert judge(without).executed == ()
