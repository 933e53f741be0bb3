"""What each invariant came to, and what to blame where it came to nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import medusa_manifests
from medusa_conformance.incident import Incident, IncidentKind
from medusa_conformance.isolation import Record
from medusa_conformance.line import Crash, Line
from medusa_conformance.remote import Description
from medusa_conformance.runner import Tally
from medusa_conformance.targets import TRIES, Described, Guarded
from medusa_conformance.verdicts import incidents, invariant_rows, stage_of, verdict
from medusa_manifests import load
from medusa_oracles import oracles
from medusa_spec.dialect import CANONICAL
from medusa_spec.errors import Refused, Unsupported
from medusa_spec.findings import Verdict
from medusa_spec.registry import CONTRACTS
from medusa_spec.stages import STAGES

COORDINATE = load("root-only")

NEEDED = sorted({name for oracle in oracles().values() for name in oracle.needs})


@pytest.mark.parametrize("name", NEEDED)
def test_every_name_that_an_oracle_needs_comes_from_a_stage(name: str) -> None:
    assert stage_of(name) in STAGES


def test_names_of_a_stage_are_said_to_come_from_it() -> None:
    own = {"heads.labels": "align_heads", "heads.residual": "apply_heads"}
    own |= {"search.paths": "search_tree", "training.loss": "train_step", "cost.claim": "cost"}
    own |= {"claims.batch": "publish_claims"}
    own |= {"exactness.law": "law", "exactness.claim": "law", "exactness.tokens": "sample"}
    own |= {"exactness.again": "sample", "exactness.other": "sample"}
    own |= {"tree.node_count": "node_count", "tree.mask": "compile_tree"}
    own |= {"selection.label": "label", "selection.path": "select"}
    own |= {"commit.source": "commit", "cache.after": "cache", "generation.tokens": "generate"}
    own |= {"checkpoint.stored": "save_checkpoint", "checkpoint.restored": "load_checkpoint"}
    assert {name: stage_of(name) for name in own} == own


def tally(
    present: tuple[str, ...] = tuple(STAGES),
    calls: tuple[str, ...] = tuple(STAGES),
    crashes: tuple[Crash, ...] = (),
    **more: Any,
) -> Tally:
    record = Record(set(present), Counter(calls))
    return Tally(crashes=[("root-only", crash) for crash in crashes], record=record, **more)


def row(seen: Tally, code: str) -> tuple[str, str | None]:
    (found,) = (r for r in invariant_rows(seen, CONTRACTS, ()) if r["code"] == code)
    return found["status"], found["reason"]


def crash(stage: str, asked: bool = True, kind: IncidentKind = "hang") -> Crash:
    return Crash("decoding", kind, stage, "no reply", asked)


def test_why_nothing_was_executed() -> None:
    code = "COMMIT.SOURCE_ROWS"
    few = tally(present=("prefill", "select"))
    assert row(few, code) == ("not-exercised", "the engine has no propose, commit")
    assert row(tally(calls=()), code) == ("not-exercised", "select was never asked")
    seen = {"selection.path", "selection.accepted", "proposal.packed", "round.tokens"}
    assert row(tally(seen=seen), code) == ("not-exercised", "commit shows no source")
    unsupported = tally()
    unsupported.record.unsupported["commit"] = Counter({"not on this card": 3})
    unsupported.seen |= seen
    said = "commit is not supported: not on this card"
    assert row(unsupported, code) == ("not-exercised", said)


@pytest.mark.parametrize(
    ("stage", "code", "hidden"),
    [
        ("commit", "COMMIT.SOURCE_ROWS", True),
        ("select", "COMMIT.SOURCE_ROWS", True),
        ("compile_tree", "COMMIT.SOURCE_ROWS", True),
        ("generate", "COMMIT.SOURCE_ROWS", False),
        ("commit", "TREE.SLOT", False),
        ("node_count", "TREE.SLOT", False),
        ("apply_heads", "POSTERIOR.THRESHOLD", False),
        ("", "TREE.SLOT", True),
        ("start", "TREE.SLOT", True),
        ("load_checkpoint", "CHECKPOINT.STRICT_KEYS", True),
        ("save_checkpoint", "CHECKPOINT.STRICT_KEYS", True),
        ("train_step", "CHECKPOINT.IDENTITY", True),
        ("load_checkpoint", "CHECKPOINT.IDENTITY", False),
        ("train_step", "TREE.SLOT", False),
        ("generate", "CHECKPOINT.IDENTITY", False),
    ],
)
def test_a_crash_hides_its_own_stage_and_those_behind_it(
    stage: str, code: str, hidden: bool
) -> None:
    status, reason = row(tally(crashes=(crash(stage),)), code)
    assert status == ("incompetent" if hidden else "not-exercised")
    assert (reason or "").startswith("hang in") == hidden


def test_a_crash_is_no_reason_for_what_a_stage_answers_without() -> None:
    seen = {"selection.path", "selection.candidates", "proposal.packed"}
    judged = tally(crashes=(crash("propose"),), seen=seen)
    said = "select shows no threshold"
    assert row(judged, "POSTERIOR.THRESHOLD") == ("not-exercised", said)
    # Of commit nothing was seen at all, and the crash comes before it.
    assert row(judged, "COMMIT.SOURCE_ROWS")[0] == "incompetent"
    # `chain.tokens` is no part of an answer of its own: another generation may have ended early.
    judged.seen.add("chain.published")
    assert row(judged, "ROUND.CHAIN_IS_CHAIN")[0] == "incompetent"


def test_a_crash_is_no_reason_for_what_the_engine_does_not_have() -> None:
    seen = tally(present=("compile_tree", "select"), crashes=(crash("select"),))
    assert row(seen, "HEADS.OFFSET") == ("not-exercised", "the engine has no align_heads")


def test_where_no_engine_was_made_nothing_is_known() -> None:
    seen = tally(present=(), calls=(), crashes=(crash("start"),))
    assert {r["status"] for r in invariant_rows(seen, CONTRACTS, ())} == {"incompetent"}


def test_a_stage_that_is_not_asked_again_has_gone_wrong_no_more_often() -> None:
    seen = tally(crashes=(crash("select"), crash("select", asked=False), crash("verify")))
    assert [(e["stage"], e["times"]) for e in incidents(seen)] == [("select", 1), ("verify", 1)]


def test_an_incident_is_never_a_pass() -> None:
    executed = Counter({"TREE.SLOT": 3})
    calm = tally(executed=executed)
    assert verdict(calm, invariant_rows(calm, CONTRACTS, ()), ()) is Verdict.PASS
    wild = tally(executed=executed, crashes=(crash("select"),))
    assert verdict(wild, invariant_rows(wild, CONTRACTS, ()), ()) is Verdict.INCONCLUSIVE
    failed = tally(executed=executed, failed=executed, crashes=(crash("select"),))
    assert verdict(failed, invariant_rows(failed, CONTRACTS, ()), ()) is Verdict.FAIL
    idle = tally()
    assert verdict(idle, invariant_rows(idle, CONTRACTS, ()), ()) is Verdict.INCONCLUSIVE


def test_what_nobody_asked_for_fails_a_run_unless_it_is_expected() -> None:
    code = "ROUND.LAWFUL_NEVER_REFUSED"
    seen = tally(executed=Counter({"TREE.SLOT": 3}), failed=Counter({code: 3}))
    rows = invariant_rows(seen, ("tree",), ())
    assert verdict(seen, rows, ()) is Verdict.FAIL
    assert verdict(seen, rows, ({"code": code, "outcome": "as-expected"},)) is Verdict.PASS
    other = ({"code": "TREE.SLOT", "outcome": "not-exercised"},)
    assert verdict(seen, rows, other) is Verdict.FAIL


@pytest.mark.parametrize("no", [Unsupported("no [/x] room"), Refused("no [/x] room")])
def test_where_no_engine_is_to_be_had_its_stages_are_there(no: Exception) -> None:
    within = medusa_manifests.tolerance("float64"), medusa_manifests.tolerance("policy")
    line = Line(COORDINATE, guarded(Scripted(start=no), "compile_tree", "node_count"), *within)
    list(line.run(("tree",)))
    seen = Tally(record=line.record)
    said = "start is not supported: no [/x] room"
    assert row(seen, "TREE.SLOT") == ("not-exercised", said)
    assert row(seen, "TREE.NODE_COUNT") == ("not-exercised", said)
    assert row(seen, "HEADS.OFFSET")[1] == "the engine has no align_heads"


# The guard


class Scripted:
    """A remote of one process, whose stages go wrong as they are told."""

    def __init__(self, **wrong: Any) -> None:
        self.wrong = wrong
        self.asked: list[str] = []

    def engine(self, *_: Any) -> Any:
        self.meet("start")
        return self

    def meet(self, stage: str) -> str:
        self.asked.append(stage)
        if stage in self.wrong:
            raise self.wrong[stage]
        return "answer"

    def __getattr__(self, stage: str) -> Callable[..., str]:
        if stage not in STAGES:
            raise AttributeError(stage)
        return lambda *_: self.meet(stage)


def guarded(remote: Any, *stages: str) -> Guarded:
    has = frozenset(stages or ("verify", "select"))
    said = Description("any", None, "any", has, {}, "list")
    return Guarded(remote, Described(said, CANONICAL))


def asked(guard: Guarded, stage: str) -> Incident | str:
    try:
        return str(getattr(guard(COORDINATE, 9), stage)())
    except Incident as incident:
        return incident


def test_what_ends_its_process_is_asked_twice() -> None:
    remote = Scripted(select=Incident("hang", "select", "no reply"))
    guard = guarded(remote)
    said = [asked(guard, "select") for _ in range(5)]
    assert remote.asked.count("select") == TRIES
    assert [i.asked for i in said if isinstance(i, Incident)] == [True] * 2 + [False] * 3
    assert {(i.kind, i.stage, i.text) for i in said if isinstance(i, Incident)} == {
        ("hang", "select", "no reply")
    }
    assert asked(guard, "verify") == "answer"


def test_what_crashes_is_asked_again() -> None:
    remote = Scripted(select=Incident("crash", "select", "ValueError"))
    guard = guarded(remote)
    for _ in range(5):
        asked(guard, "select")
    assert remote.asked.count("select") == 5


def test_a_stage_is_not_blamed_for_the_end_of_its_process_by_another() -> None:
    gone = Incident("exit", "verify", "the process that held this engine has ended", asked=False)
    remote = Scripted(verify=gone)
    guard = guarded(remote)
    for _ in range(5):
        asked(guard, "verify")
    assert remote.asked.count("verify") == 5


@pytest.mark.parametrize("blamed", ["stop", "capabilities"])
def test_what_comes_before_a_stage_is_blamed_itself(blamed: str) -> None:
    remote = Scripted(verify=Incident("hang", blamed, "no reply"))
    guard = guarded(remote)
    engine = guard(COORDINATE, 9)
    said = []
    for _ in range(4):
        with pytest.raises(Incident) as caught:
            engine.verify()
        said.append((caught.value.stage, caught.value.asked))
    assert said == [(blamed, True)] * 2 + [(blamed, False)] * 2
    with pytest.raises(Incident):
        engine.select()
    assert remote.asked == ["start", "verify", "verify"]


def test_a_start_that_fails_now_and_then_is_tried_on() -> None:
    remote = Scripted()
    guard = guarded(remote)
    for _ in range(3):
        remote.wrong = {"start": Incident("exit", "start", "ended")}
        assert isinstance(asked(guard, "verify"), Incident)
        remote.wrong = {}
        assert asked(guard, "verify") == "answer"
    remote.wrong = {"start": Incident("exit", "start", "ended")}
    before = len(remote.asked)
    for _ in range(9):
        asked(guard, "verify")
    assert len(remote.asked) == before + TRIES


def test_only_what_the_process_has_is_there() -> None:
    engine = guarded(Scripted())(COORDINATE, 9)
    assert not hasattr(engine, "commit")
    assert engine.apart
