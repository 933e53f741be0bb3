"""Each oracle of the checkpoint contract: silent on the lawful, heard on the wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from medusa_oracles import judge
from medusa_spec import Trace
from medusa_spec.registry import of_contract

CODES = [invariant.code for invariant in of_contract("checkpoint")]
A = dict(zip((i.clause for i in of_contract("checkpoint")), CODES, strict=True))
ALL = {*CODES}

FAULTS = [code for code in CODES if code not in (A["A7"], A["A10"])]
"""Rules of which something is broken on purpose; a round trip is of a lawful one."""

# A clause, a lawful checkpoint, and what makes it wrong.
Corruption = Callable[[Any, Trace], Mapping[str, Any]]
CASES: dict[str, tuple[str, Corruption]] = {
    "A1": ("medusa-1", lambda by, t: {"config": by.config_with(t, "base_revision", by.ABSENT)}),
    "A2": ("medusa-1", lambda by, t: {"config": by.config_with(t, "heads", 5)}),
    "A3": ("medusa-1", lambda by, t: {"refused": "medusa_lm_head.pt: no such file"}),
    "A5": ("medusa-1", lambda by, t: {"config": by.config_with(t, "projection", "shared")}),
    "A6": ("medusa-2", lambda by, t: {"saved": by.saved_with(t, backbone=[])}),
    "A7": (
        "medusa-1",
        lambda by, t: {"loaded.bias": by.nudged(t["checkpoint.loaded.bias"], 2, 1, 7)},
    ),
    "A10": ("medusa-2", lambda by, t: {"session_kv": t["checkpoint.session_kv"] + 1e-6}),
}


@pytest.mark.parametrize("clause", CASES)
def test_oracle_of_lawful_checkpoints(clause: str, saved: Any, prove: Any, by: Any) -> None:
    variant, corrupt = CASES[clause]
    trace = saved(variant)
    changes = {f"checkpoint.{name}": value for name, value in corrupt(by, trace).items()}
    prove(A[clause], trace, changes)
    assert {f.code for f in judge(by.changed(trace, changes)).findings} == {A[clause]}


@pytest.mark.parametrize("code", FAULTS)
def test_oracle_of_broken_checkpoints(code: str, broken: Any, prove: Any, by: Any) -> None:
    planted = False if code == A["A9"] else None
    loaded = {"checkpoint.refused": None}
    trace = broken(code, executed=planted)
    if code != A["A6"]:
        prove(code, trace, loaded)
    (finding,) = judge(by.changed(trace, loaded)).findings
    assert finding.code == code
    assert finding.message == "a checkpoint was loaded although its third screw is loose"
    assert (finding.expected, finding.observed) == ("refused", None)


def test_a_fault_is_judged_by_the_rule_that_it_breaks_and_by_those_of_all_refusals(
    broken: Any, by: Any
) -> None:
    everywhere = {A["A8"], A["A10"]}
    for code in FAULTS:
        planted = False if code == A["A9"] else None
        # That it is refused without its backbone does not say that it works with it.
        own = set() if code == A["A6"] else {code}
        assert by.executed(broken(code, executed=planted)) == everywhere | own
    assert by.executed(broken("CHECKPOINT.OF_A_LATER_RELEASE")) == everywhere
    # Of what is loaded, A8 says nothing but where it should not have been.
    assert judge(broken("CHECKPOINT.OF_A_LATER_RELEASE", refused=None)).executed == ()


class TestBackbone:
    def test_one_bit_of_the_logits_is_seen(self, saved: Any, by: Any) -> None:
        for variant in ("medusa-2", "self-distilled"):
            trace = saved(variant)
            other = by.nudged(trace["checkpoint.loader_logits"], 4, 40)
            (finding,) = judge(by.changed(trace, {"checkpoint.loader_logits": other})).findings
            assert (finding.code, finding.where) == (A["A6"], {"position": 4, "token": 40})
            assert by.codes(trace, loader_logits=other[:, :-1]) == {A["A6"]}

    def test_medusa_1_needs_none(self, saved: Any, by: Any) -> None:
        assert by.executed(saved()) == ALL - {
            A[clause] for clause in ("A4", "A6", "A8", "A9", "A10")
        }

    def test_without_different_logits_nothing_is_proved(self, saved: Any, by: Any) -> None:
        trace = saved("medusa-2")
        assert A["A6"] in by.executed(trace)
        assert A["A6"] not in by.executed(trace, "loader_logits")
        assert A["A6"] not in by.executed(trace, "saver_logits", "loader_logits")
        flat = np.full((5, 48), 0.25)
        alike = by.changed(trace, dict.fromkeys(LOGITS, flat))
        assert A["A6"] not in by.executed(alike)
        # Bits are compared, so differences far below any tolerance prove as much as great ones.
        faint = trace["checkpoint.saver_logits"] * 1e-12
        assert A["A6"] in by.executed(by.changed(trace, dict.fromkeys(LOGITS, faint)))
        # A breach is one all the same.
        assert by.codes(alike, saved=by.saved_with(trace, backbone=[])) == {A["A6"]}
        assert by.codes(alike, loader_logits=by.nudged(flat, 0, 0)) == {A["A6"]}


LOGITS = ("checkpoint.saver_logits", "checkpoint.loader_logits")


PLACES = {
    "weight": {"head": 1, "block": 0, "channel": 3, "input": 2},
    "bias": {"head": 2, "block": 1, "channel": 7},
    "projection": {"head": 0, "token": 47, "channel": 5},
}
"""One parameter of each part."""


class TestRoundTrip:
    @pytest.mark.parametrize("part", PLACES)
    def test_one_bit_is_seen_where_it_is(self, part: str, saved: Any, by: Any) -> None:
        trace, place = saved(), PLACES[part]
        name = f"checkpoint.loaded.{part}"
        other = by.nudged(trace[name], *place.values())
        (finding,) = judge(by.changed(trace, {name: other})).findings
        assert (finding.code, finding.where) == (A["A7"], place)
        assert finding.message == f"a head's {part} is not loaded as it was saved"
        assert finding.difference is not None
        assert finding.difference.entries == 1

    def test_aliased_blocks_are_not_those_that_were_saved(self, saved: Any, by: Any) -> None:
        trace = saved()
        for part in ("weight", "bias"):
            aliased = trace[f"checkpoint.loaded.{part}"].copy()
            aliased[:, 1] = aliased[:, 0]
            assert by.codes(trace, **{f"loaded.{part}": aliased}) == {A["A7"]}
            assert by.codes(trace, **{f"loaded.{part}": aliased[:, :1]}) == {A["A7"]}

    def test_the_base_s_own_head_is_none_of_theirs(self, saved: Any, by: Any) -> None:
        trace = saved()
        held, loaded = (trace[f"checkpoint.{of}.lm_head"] for of in ("held", "loaded"))
        assert not np.array_equal(held, loaded)
        assert A["A7"] in by.executed(trace)

    @pytest.mark.parametrize(
        "changes",
        [
            {"sha256": "0" * 64},
            {"dtype": "BF16"},
            {"shape": [64]},
            {"tensor": "medusa_head.0.0.linear.weight"},
        ],
    )
    def test_tensors_are_saved_again_as_they_were(self, changes: Any, saved: Any, by: Any) -> None:
        trace = saved()
        again = [trace["checkpoint.restored"][0] | changes, *trace["checkpoint.restored"][1:]]
        assert by.codes(trace, restored=again) == {A["A7"]}

    def test_a_finding_names_the_first_tensor_that_is_another(self, saved: Any, by: Any) -> None:
        trace = saved()
        stored = trace["checkpoint.stored"]
        (finding,) = judge(by.changed(trace, {"checkpoint.restored": stored[1:]})).findings
        assert finding.message == (
            "1 of 15 tensors are not saved again as they were stored, 0.0.linear.weight the first"
        )
        assert finding.expected == f"F32 [8, 8] {stored[0]['sha256'][:12]}"
        assert finding.observed is None
        more = [*stored, stored[3] | {"tensor": "more"}]
        (finding,) = judge(by.changed(trace, {"checkpoint.restored": more})).findings
        assert finding.message.startswith("1 of 16 tensors")
        assert (finding.expected, finding.observed) == (
            None,
            f"F32 [8] {stored[3]['sha256'][:12]}",
        )

    def test_files_may_have_other_names_and_tensors_another_order(
        self, saved: Any, by: Any
    ) -> None:
        trace = saved()
        again = [e | {"file": "2.safetensors"} for e in reversed(trace["checkpoint.restored"])]
        assert by.codes(trace, restored=again) == set()

    def test_a_tensor_that_two_files_hold_is_there_twice(self, saved: Any, by: Any) -> None:
        trace = saved()
        first = trace["checkpoint.stored"][0]
        twice = [*trace["checkpoint.stored"], first | {"file": "other.safetensors"}]
        assert by.codes(trace, stored=twice) == {A["A7"]}
        assert by.codes(trace, stored=twice, restored=twice) == set()

    def test_either_half_is_judged_alone(self, saved: Any, by: Any) -> None:
        parts = [f"{of}.{p}" for of in ("held", "loaded") for p in PLACES]
        lists = "stored", "restored"
        for trace in (saved(), saved("medusa-2")):
            assert A["A7"] in by.executed(trace, *parts)
            assert A["A7"] in by.executed(trace, *lists)
            assert A["A7"] not in by.executed(trace, *parts, *lists)
        bare = by.changed(saved(), {"checkpoint.stored": [], "checkpoint.restored": []})
        # Two folders of which nothing could be read are equal, and prove nothing.
        assert A["A7"] in by.executed(bare)
        assert A["A7"] not in by.executed(bare, *parts)


class TestRefusals:
    def test_a_lawful_one_says_nothing_of_what_was_never_loaded(self, saved: Any, by: Any) -> None:
        trace = by.changed(
            saved("medusa-2"),
            {
                "checkpoint.refused": "not today",
                **by.names("restored", "identity", "loader_logits", "saver_logits"),
                **by.names("loader_kv", "session_kv", "began_kv"),
                **by.names(*(f"loaded.{p}" for p in ("weight", "bias", "lm_head", "projection"))),
            },
        )
        judgement = judge(trace)
        assert {f.code for f in judgement.findings} == {A["A3"]}
        assert {*judgement.executed} == {A[clause] for clause in ("A1", "A2", "A3", "A5")}

    @pytest.mark.parametrize("part", ["logits", "head_logits"])
    @pytest.mark.parametrize("code", FAULTS)
    def test_one_bit_that_changes_behind_it_is_seen(
        self, code: str, part: str, broken: Any, by: Any
    ) -> None:
        trace = broken(code, executed=False if code == A["A9"] else None)
        name = f"checkpoint.after.{part}"
        place = (2,) * trace[name].ndim
        (finding,) = judge(by.changed(trace, {name: by.nudged(trace[name], *place)})).findings
        assert finding.code == A["A8"]
        assert finding.where == {
            **({"head": 2} if part == "head_logits" else {}),
            "position": 2,
            "token": 2,
        }
        assert finding.message == (
            f"{part} of a plain pass change behind a refusal: its third screw is loose"
        )
        assert by.codes(trace, **{f"after.{part}": trace[name][:-1]}) == {A["A8"]}

    def test_without_the_heads_nothing_is_proved(self, broken: Any, by: Any) -> None:
        trace = broken(A["A8"])
        trace = by.changed(trace, by.names("before.kv", "after.kv"))
        assert by.executed(trace) == {A["A8"]}
        assert by.executed(trace, "before.logits", "after.logits") == {A["A8"]}
        assert by.executed(trace, "after.head_logits") == set()
        flat = np.zeros((3, 5, 48))
        heads = dict.fromkeys(("before.head_logits", "after.head_logits"), flat)
        alike = by.changed(trace, {f"checkpoint.{name}": array for name, array in heads.items()})
        assert by.executed(alike) == set()
        assert by.codes(alike, **{"after.head_logits": by.nudged(flat, 0, 0, 0)}) == {A["A8"]}
        assert by.codes(alike, refused=None) == {A["A8"]}


class TestSession:
    def test_behind_a_load_rows_are_new_or_gone(self, saved: Any, by: Any) -> None:
        trace = saved("medusa-2")
        rows = trace["checkpoint.session_kv"]
        assert by.codes(trace, session_kv=rows[..., :0, :]) == set()
        wrong = rows.copy()
        wrong[1, 0, 0, 1, 3] += 1e-6
        (finding,) = judge(by.changed(trace, {"checkpoint.session_kv": wrong})).findings
        assert finding.code == A["A10"]
        assert finding.where == {
            **{"layer": 1, "key_or_value": 0, "kv_head": 0, "cache_row": 1, "channel": 3}
        }
        # Within what rounding is granted, and still those of old.
        old = trace["checkpoint.loader_kv"] + 1e-12
        assert by.codes(trace, began_kv=old, session_kv=rows) == set()
        assert by.codes(trace, began_kv=old, session_kv=old[..., :2, :]) == {A["A10"]}
        assert by.codes(trace, began_kv=old, loader_kv=old, session_kv=old) == set()
        # More rows than the prefix had are of no prefix.
        longer = np.concatenate([trace["checkpoint.loader_kv"]] * 2, axis=3)
        assert by.codes(trace, session_kv=longer) == {A["A10"]}

    def test_on_an_unchanged_base_nothing_is_proved(self, saved: Any, by: Any) -> None:
        rows = np.zeros((2, 2, 1, 5, 8))
        given = {"checkpoint.session_kv": rows, "checkpoint.loader_kv": rows + 1}
        assert A["A10"] not in by.executed(by.changed(saved(), given))

    def test_behind_a_refusal_it_is_what_it_was(self, broken: Any, by: Any) -> None:
        trace = broken(A["A1"])
        rows = trace["checkpoint.after.kv"]
        assert by.codes(trace, **{"after.kv": rows[..., :0, :]}) == {A["A10"]}
        assert by.codes(trace, **{"after.kv": by.nudged(rows, 0, 1, 0, 4, 7)}) == {A["A10"]}
        assert A["A10"] not in by.executed(trace, "after.kv")
        # What was loaded is not the engine that it was, and A1 says so.
        assert by.codes(trace, refused=None, **{"after.kv": rows + 1}) == {A["A1"]}


class TestFrontier:
    def test_a_generation_begins_with_what_was_loaded(self, saved: Any, by: Any) -> None:
        trace = by.changed(saved(), by.names("loader_hidden"))
        heads = np.random.default_rng(7).normal(size=(3, 5, 48))
        shown = {"loader_heads": heads, "frontier.heads": heads[:, 4].copy()}
        assert by.codes(trace, **shown) == set()
        assert by.codes(trace, **shown | {"frontier.heads": heads[:, 3]}) == {A["A7"]}
        trained = saved("medusa-2")
        logits = trained["checkpoint.loader_logits"]
        assert by.codes(trained, **{"frontier.target": logits[4].copy()}) == set()
        assert by.codes(trained, **{"frontier.target": logits[0]}) == {A["A7"]}


class TestCode:
    def test_who_leaves_a_pickle_alone_may_load_the_rest(self, broken: Any, by: Any) -> None:
        trace = broken(A["A9"], executed=False)
        fault = trace["checkpoint.fault"] | {"beside": True}
        assert by.codes(trace, fault=fault, refused=None) == set()
        assert by.codes(trace, fault=fault, refused=None, executed=True) == {A["A9"]}

    def test_what_was_run_was_run_whatever_was_said(self, broken: Any, by: Any) -> None:
        trace = broken(A["A9"], executed=True)
        (finding,) = judge(trace).findings
        assert (finding.code, finding.expected, finding.observed) == (A["A9"], False, True)
        assert finding.message == "what a file holds was run: its third screw is loose"
        assert len(judge(by.changed(trace, {"checkpoint.refused": None})).findings) == 2

    def test_where_nothing_was_planted_nothing_is_said(self, broken: Any, by: Any) -> None:
        assert A["A9"] not in by.executed(broken(A["A4"]))


def test_a_coordinate_without_a_release_has_no_checkpoint(saved: Any, broken: Any) -> None:
    for trace in (saved("medusa-2"), *(broken(code, executed=True) for code in FAULTS)):
        bare = replace(trace, coordinate=replace(trace.coordinate, release=None))
        assert judge(bare).executed == ()


def test_what_is_of_no_form_is_said_to_be_so(saved: Any, by: Any) -> None:
    trace = saved()
    fields = trace["checkpoint.saved"]["fields"] | {"base": 3}
    findings = judge(
        by.changed(trace, {"checkpoint.saved": by.saved_with(trace, fields=fields)})
    ).findings
    assert {f.code for f in findings} == {A["A1"], A["A2"], A["A5"]}
    assert all("of no form" in f.message for f in findings)
