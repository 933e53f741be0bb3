"""Training steps at the edges of the rules: what is lawful, and what is broken in another way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from medusa_conformance.runner import Setting, judge_coordinates, reference_factory
from medusa_manifests import load
from medusa_oracles import judge
from medusa_spec import Trace
from medusa_spec.dialect import Dialect

HEADS_ALONE, JOINT = ("assistant-only", 0), ("assistant-only-joint", 1)
TAUGHT, EMPTY = ("assistant-only-distilled", 1), ("empty-head", 0)


def codes(trace: Trace) -> set[str]:
    return {finding.code for finding in judge(trace).findings}


class TestEmptyHeads:
    def refused(self, trace: Trace, declared: str, reason: str | None) -> set[str]:
        documents = {**trace.documents, "training.refused": reason}
        arrays = dict(trace.arrays) if reason is None else {"training.step": np.array(0)}
        told = replace(
            trace, arrays=arrays, documents=documents, dialect=Dialect(empty_heads=declared)
        )
        return {finding.code for finding in judge(told).findings}

    def test_a_refusal_is_lawful_where_it_is_declared_and_called_for(self, lawful: Any) -> None:
        empty, full = lawful(*EMPTY), lawful(*HEADS_ALONE)
        heard = {"TRAINING.EMPTY_HEAD"}
        assert self.refused(empty, "reject", "head 2 has no label") == set()
        assert self.refused(empty, "skip", "head 2 has no label") == heard
        assert self.refused(full, "reject", "not today") == heard
        assert self.refused(full, "skip", "not today") == heard

    def test_an_answer_is_lawful_unless_a_refusal_is_declared(self, lawful: Any) -> None:
        empty, full = lawful(*EMPTY), lawful(*HEADS_ALONE)
        assert self.refused(empty, "reject", None) == {"TRAINING.EMPTY_HEAD"}
        assert self.refused(empty, "skip", None) == set()
        assert self.refused(full, "reject", None) == set()

    @pytest.mark.parametrize(
        "skipped",
        [
            [],
            [{"head": 2, "reason": "no label"}],
            [{"head": h, "reason": "no label"} for h in (1, 2, 3)],
            [{"head": h, "reason": "no label"} for h in (2, 2, 3)],
            [{"head": 2, "reason": " "}, {"head": 3, "reason": "no label"}],
        ],
    )
    def test_those_that_were_skipped_are_told_with_a_reason(
        self, skipped: Any, lawful: Any, fired: Any
    ) -> None:
        changes = {"training.skipped": skipped}
        assert fired(lawful(*EMPTY), changes) == {"TRAINING.EMPTY_HEAD"}

    def test_a_nan_behind_finite_logits_is_its_fault(self, lawful: Any, fired: Any) -> None:
        nan = np.array(np.nan)
        assert "TRAINING.EMPTY_HEAD" in fired(lawful(*JOINT), {"training.loss": nan})
        logits = lawful(*JOINT)["training.head_logits"].copy()
        logits[0, 0, 1] = np.nan
        changes = {"training.loss": nan, "training.head_logits": logits}
        assert "TRAINING.EMPTY_HEAD" not in fired(lawful(*JOINT), changes)

    def test_it_gets_no_gradient(self, lawful: Any, fired: Any) -> None:
        gradient = lawful(*EMPTY)["training.gradient.bias"].copy()
        gradient[3] += 0.1
        found = fired(lawful(*EMPTY), {"training.gradient.bias": gradient})
        assert found == {"TRAINING.GRADIENT"}


class TestTerms:
    def without(self, trace: Trace, loss: float) -> list[str]:
        arrays = {n: v for n, v in trace.arrays.items() if n != "training.backbone_loss"}
        arrays["training.loss"] = np.array(loss)
        return [finding.code for finding in judge(replace(trace, arrays=arrays)).findings]

    @pytest.mark.parametrize(
        ("place", "code"), [(JOINT, "TRAINING.LM_TERM"), (TAUGHT, "TRAINING.DISTILL_DIRECTION")]
    )
    def test_a_term_that_is_not_shown_is_looked_for_in_the_sum(
        self, place: Any, code: str, lawful: Any
    ) -> None:
        trace = lawful(*place)
        whole, term = float(trace["training.loss"]), float(trace["training.backbone_loss"])
        assert term > 0.01
        assert self.without(trace, whole) == []
        assert self.without(trace, whole - term) == [code]

    def test_a_reversed_divergence_is_called_so(self, lawful: Any, wrong: Any) -> None:
        trace = lawful(*TAUGHT)
        changed = {**trace.arrays, **wrong.reverse(trace)}
        said = {f.code: f.message for f in judge(replace(trace, arrays=changed)).findings}
        assert said["TRAINING.DISTILL_DIRECTION"].endswith("but of KL(student || teacher)")

    def test_other_wrong_losses_are_not_the_teacher_s(
        self, lawful: Any, fired: Any, wrong: Any
    ) -> None:
        trace = lawful(*TAUGHT)
        assert {"TRAINING.HEADS_LEARN_HARD_LABELS", "TRAINING.OWNED_MEAN"} <= fired(
            trace, wrong.soft(trace)
        )
        found = fired(trace, wrong.scaled("head_losses", 2.0, trace))
        assert found == {"TRAINING.OWNED_MEAN", "TRAINING.HEAD_WEIGHTS"}

    def test_a_warm_up_s_loss_is_unweighted(self, lawful: Any, fired: Any, wrong: Any) -> None:
        warm = lawful("assistant-only-joint", 0)
        assert fired(warm, wrong.scaled("loss", 0.2, warm)) == {"TRAINING.COMBINED_LOSS"}

    def test_a_gradient_of_the_unweighted_loss_is_another(self, lawful: Any, fired: Any) -> None:
        trace = lawful(*TAUGHT)
        changes = {n: v * 100 for n, v in trace.arrays.items() if ".gradient." in n}
        assert fired(trace, changes) == {"TRAINING.GRADIENT"}


class TestBackbone:
    def test_one_bit_of_a_plain_pass_is_seen(self, lawful: Any, fired: Any) -> None:
        after = lawful(*HEADS_ALONE)["training.plain_after"].copy()
        after[1, 2, 3] = np.nextafter(after[1, 2, 3], np.inf)
        changes = {"training.plain_after": after}
        assert fired(lawful(*HEADS_ALONE), changes) == {"TRAINING.BACKBONE_FROZEN"}

    @pytest.mark.parametrize("part", ["backbone", "lm_head"])
    @pytest.mark.parametrize("place", [("padded-batch", 0), ("padded-batch", 1), TAUGHT])
    def test_behind_an_adapter_the_base_never_moves(
        self, place: Any, part: str, lawful: Any, fired: Any, wrong: Any
    ) -> None:
        found = fired(lawful(*place), wrong.moved(lawful(*place), part, True))
        assert "TRAINING.BACKBONE_FROZEN" in found

    def test_an_adapter_stands_still_in_a_warm_up(
        self, lawful: Any, fired: Any, wrong: Any
    ) -> None:
        warm = lawful("padded-batch", 0)
        found = fired(warm, wrong.moved(warm, "adapter", True))
        assert found == {"TRAINING.BACKBONE_FROZEN"}

    def test_what_must_stay_is_listed(self, lawful: Any, fired: Any) -> None:
        trace = lawful(*HEADS_ALONE)
        own = [entry for entry in trace["training.parameters"] if entry["part"] == "heads"]
        assert fired(trace, {"training.parameters": own}) == {"TRAINING.BACKBONE_FROZEN"}

    @pytest.mark.parametrize(
        ("place", "part"), [(JOINT, "backbone"), (JOINT, "lm_head"), (TAUGHT, "adapter")]
    )
    def test_every_part_that_trains_changes(
        self, place: Any, part: str, lawful: Any, fired: Any, wrong: Any
    ) -> None:
        found = fired(lawful(*place), wrong.moved(lawful(*place), part, False))
        assert "TRAINING.BACKBONE_TRAINS" in found

    def test_a_joint_step_changes_what_is_said(self, lawful: Any, fired: Any) -> None:
        trace = lawful(*JOINT)
        same = {"training.plain_after": trace["training.plain_before"]}
        assert fired(trace, same) == {"TRAINING.BACKBONE_TRAINS"}

    def test_a_batch_without_labels_may_change_nothing(self, lawful: Any, fired: Any) -> None:
        trace = lawful(*TAUGHT)
        nobody = tuple((False,) * 8 for _ in range(2))
        training = replace(trace.coordinate.training, owned=nobody)
        silent = replace(trace, coordinate=replace(trace.coordinate, training=training))
        still = {
            "training.parameters": [
                e | {"after": e["before"]} for e in trace["training.parameters"]
            ],
            "training.plain_after": trace["training.plain_before"],
        }
        found = fired(silent, still)
        assert not found & {"TRAINING.BACKBONE_TRAINS", "TRAINING.STAGES"}


class TestGroups:
    def names(self, trace: Trace, number: int) -> list[str]:
        return list(trace["training.groups"][number]["parameters"])

    def test_a_forgotten_parameter(self, lawful: Any, fired: Any, wrong: Any) -> None:
        trace = lawful(*JOINT)
        for number in (0, 1):
            changes = wrong.regrouped(trace, number, parameters=self.names(trace, number)[:-1])
            assert fired(trace, changes) == {"TRAINING.GROUPS"}

    def test_a_parameter_in_both(self, lawful: Any, fired: Any, wrong: Any) -> None:
        trace = lawful(*JOINT)
        both = [*self.names(trace, 1), self.names(trace, 0)[0]]
        assert fired(trace, wrong.regrouped(trace, 1, parameters=both)) == {"TRAINING.GROUPS"}

    def test_the_base_behind_an_adapter(self, lawful: Any, fired: Any, wrong: Any) -> None:
        trace = lawful(*TAUGHT)
        more = [*self.names(trace, 1), "backbone.embed"]
        assert fired(trace, wrong.regrouped(trace, 1, parameters=more)) == {"TRAINING.GROUPS"}

    def test_everything_in_medusa_1(self, lawful: Any, fired: Any) -> None:
        trace = lawful(*HEADS_ALONE)
        base = {"name": "backbone", "rate": 0.0, "parameters": ["backbone.embed"]}
        assert fired(trace, {"training.groups": [*trace["training.groups"], base]}) == {
            "TRAINING.GROUPS"
        }

    def test_a_rate_of_another_order(self, lawful: Any, fired: Any, wrong: Any) -> None:
        trace = lawful(*JOINT)
        assert fired(trace, wrong.regrouped(trace, 0, rate=5e-4)) == {"TRAINING.GROUPS"}
        # A rate in single precision is the declared one.
        single = float(np.float32(trace["training.groups"][1]["rate"]))
        assert fired(trace, wrong.regrouped(trace, 1, rate=single)) == set()

    def test_two_groups_of_one_name_are_lawful(self, lawful: Any, fired: Any) -> None:
        trace = lawful(*JOINT)
        heads, backbone = trace["training.groups"]
        parts = [
            heads | {"parameters": p} for p in (heads["parameters"][:1], heads["parameters"][1:])
        ]
        assert fired(trace, {"training.groups": [*parts, backbone]}) == set()


class TestStages:
    def test_the_backbone_joins_early(self, lawful: Any, fired: Any, wrong: Any) -> None:
        warm = lawful("assistant-only-joint", 0)
        joint = lawful(*JOINT)["training.groups"]
        assert fired(warm, {"training.groups": joint}) == {"TRAINING.STAGES"}

    def test_without_groups_what_changed_tells(self, lawful: Any, wrong: Any) -> None:
        for step, changes in ((0, True), (1, False)):
            trace = lawful("assistant-only-joint", step)
            documents = {**trace.documents, **wrong.moved(trace, "backbone", changes)}
            if not changes:
                documents["training.parameters"] = [
                    entry | {"after": entry["before"]} if entry["part"] == "lm_head" else entry
                    for entry in documents["training.parameters"]
                ]
            assert "TRAINING.STAGES" not in codes(replace(trace, documents=documents))
            del documents["training.groups"]
            assert "TRAINING.STAGES" in codes(replace(trace, documents=documents))

    def test_the_heads_stop(self, lawful: Any, fired: Any, wrong: Any) -> None:
        joint = lawful(*JOINT)
        assert fired(joint, wrong.moved(joint, "heads", False)) == {"TRAINING.STAGES"}
        lone = {"training.groups": joint["training.groups"][1:]}
        assert fired(joint, lone) == {"TRAINING.STAGES", "TRAINING.GROUPS"}

    def test_heads_that_do_not_train_at_all(self, lawful: Any, fired: Any, wrong: Any) -> None:
        alone = lawful(*HEADS_ALONE)
        assert fired(alone, wrong.moved(alone, "heads", False)) == {"TRAINING.STAGES"}


def test_heads_without_parameters_train_nothing() -> None:
    """Heads of no block that share the base projection are lawful, and no group holds them."""
    given = load("assistant-only-joint")
    bare = replace(given, model=replace(given.model, head_blocks=0, projection="shared"))
    setting = Setting("cpu", "float64", ("training",))
    tally = judge_coordinates(reference_factory(setting), [bare], setting)
    assert (tally.failed, tally.crashes) == ({}, [])
    assert tally.executed["TRAINING.STAGES"] == 1
