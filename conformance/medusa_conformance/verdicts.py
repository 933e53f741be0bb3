"""From a tally to what each invariant came to, and to the verdict of a `check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from medusa_conformance.expected import LAWFUL
from medusa_conformance.line import Crash
from medusa_conformance.runner import Tally
from medusa_oracles import oracles
from medusa_spec.findings import Verdict
from medusa_spec.registry import CONTRACTS, invariants
from medusa_spec.stages import STAGES

_STAGE_OF = (
    ("coordinate.", "admit"),
    ("heads.labels", "align_heads"),
    ("heads.owned", "align_heads"),
    ("heads.coverage", "align_heads"),
    ("heads.masked_coverage", "align_heads"),
    ("heads.tokens", "align_heads"),
    ("heads.", "apply_heads"),
    ("search.", "search_tree"),
    ("exactness.tokens", "sample"),
    ("exactness.again", "sample"),
    ("exactness.other", "sample"),
    ("exactness.", "law"),
    ("training.plain_", "forward"),
    ("training.", "train_step"),
    ("checkpoint.saved", "save_checkpoint"),
    ("checkpoint.config", "save_checkpoint"),
    ("checkpoint.stored", "save_checkpoint"),
    ("checkpoint.fault", "save_checkpoint"),
    ("checkpoint.session_kv", "cache"),
    *((f"checkpoint.{name}_kv", "prefill") for name in ("began", "loader")),
    ("checkpoint.", "load_checkpoint"),
    ("cost.", "cost"),
    ("claims.", "publish_claims"),
    ("tree.node_count", "node_count"),
    ("tree.", "compile_tree"),
    ("frontier.", "propose"),
    ("proposal.", "propose"),
    ("verification.", "verify"),
    ("selection.label", "label"),
    ("selection.", "select"),
    ("commit.", "commit"),
    ("cache.", "cache"),
    ("round.visible_kv", "cache"),
    ("round.fresh_kv", "forward"),
    ("round.", "prefill"),
    ("plain.", "forward"),
    ("refusal.", "verify"),
    ("generation.plain_logits", "forward"),
    ("chain.plain_", "forward"),
    ("chain.frontier", "prefill"),
    ("generation.", "generate"),
    ("chain.", "generate"),
    ("fresh.", "generate"),
    ("rounds.", "commit"),
)
"""The stage from which a trace has the names that begin so; the first that fits."""


_ANSWERS = (
    *("heads", "search", "exactness", "training", "cost", "claims", "tree"),
    *("proposal", "verification", "selection", "commit"),
)
"""Parts of a trace that are a stage's answer as it came, and not what the line made of several."""


_ORDER = {
    "compile_tree": 0,
    "prefill": 1,
    "forward": 2,
    "propose": 3,
    "verify": 4,
    "select": 5,
    "label": 6,
    "commit": 7,
    "cache": 7,
    "generate": 8,
}
"""When a round asks for a stage first: one that goes wrong hides itself and those behind it."""

_SHELF = {"train_step": 0, "save_checkpoint": 1, "load_checkpoint": 2}
"""The same of a checkpoint, which is none of a round's."""


ABSENT = "the engine has no "
"""How the reason of an invariant begins that asks for a stage which is not there."""


def stage_of(name: str) -> str:
    """The stage that an engine lacks where a trace never holds this name."""
    return next(stage for prefix, stage in _STAGE_OF if name.startswith(prefix))


def invariant_rows(
    tally: Tally,
    contracts: Sequence[str],
    expected: Iterable[Mapping[str, Any]],
    traces: bool = False,
) -> list[dict[str, Any]]:
    """Every planned invariant with what it came to, in registry order.

    `traces`: what was judged are trace files, of which there is no stage to ask.
    """
    outcomes = {entry["code"]: entry for entry in expected}
    found = []
    for code, invariant in invariants().items():
        if invariant.contract not in contracts:
            continue
        status, reason = _status(code, tally, outcomes.get(code), traces)
        found.append(
            {
                "code": code,
                "contract": invariant.contract,
                "clause": invariant.clause,
                "sight": invariant.sight,
                "status": status,
                "executed": tally.executed[code],
                "failed": tally.failed[code],
                "reason": reason,
            }
        )
    return found


def _status(
    code: str, tally: Tally, expected: Mapping[str, Any] | None, traces: bool
) -> tuple[str, str | None]:
    if tally.failed[code]:
        if expected is not None and expected["outcome"] in LAWFUL:
            return "expected-failure", expected["reason"]
        return "fail", None
    if tally.executed[code]:
        if expected is not None and expected["outcome"] in ("unexpected-pass", "other-code"):
            return "unexpected-pass", f"expected to fail: {expected['reason']}"
        return "pass", None
    return _untraced(code, tally) if traces else _idle(code, tally)


def _untraced(code: str, tally: Tally) -> tuple[str, str]:
    lacking = [name for name in oracles()[code].needs if name not in tally.seen]
    if lacking:
        return "not-exercised", f"no trace holds {', '.join(lacking)}"
    return "not-exercised", "no trace that holds what it reads called for it"


def _idle(code: str, tally: Tally) -> tuple[str, str]:
    """Why nothing was executed: a stage that went wrong, that is not there, or that shows less."""
    record = tally.record
    lacking = [name for name in oracles()[code].needs if name not in tally.seen]
    stages = list(dict.fromkeys(map(stage_of, lacking)))
    absent = [stage for stage in stages if stage not in record.present]
    if lacking and not absent and all(_withheld(name, tally) for name in lacking):
        return "not-exercised", _shows_less(lacking[0])
    for _, crash in tally.crashes:
        # Where no engine was ever made, nothing is known of its stages.
        if not record.present or (not absent and concerns(crash, stages)):
            return "incompetent", f"{crash.kind} in {crash.stage or crash.section}: {crash.error}"
    if absent:
        return "not-exercised", f"{ABSENT}{', '.join(absent)}"
    for stage in stages:
        if stage in record.unsupported:
            said = next(iter(record.unsupported[stage]))
            return "not-exercised", f"{stage} is not supported: {said}"
    if lacking:
        asked = record.calls[stages[0]]
        if asked:
            return "not-exercised", _shows_less(lacking[0])
        for said in record.unsupported.get("start", ()):
            return "not-exercised", f"start is not supported: {said}"
        return "not-exercised", f"{stages[0]} was never asked"
    if oracles()[code].proves is not None:
        return "not-exercised", "what the engine showed is too little, or too alike, to prove it"
    return "not-exercised", "nothing that the engine showed called for it"


def _withheld(name: str, tally: Tally) -> bool:
    """Whether a stage answered, and without this: no incident elsewhere is why it is not seen."""
    field = name.partition(".")[0]
    return field in _ANSWERS and any(
        seen.startswith(f"{field}.") and stage_of(seen) == stage_of(name) for seen in tally.seen
    )


def _shows_less(name: str) -> str:
    return f"{stage_of(name)} shows no {name.partition('.')[2]}"


def concerns(crash: Crash, stages: Collection[str]) -> bool:
    """Whether a crash hides what these stages would have shown.

    Without a stage of its own the line itself could not go on, whatever it would have asked for.
    """
    if crash.stage not in STAGES or not stages:
        return True
    return any(_hides(crash.stage, stage) for stage in stages)


def _hides(earlier: str, later: str) -> bool:
    if earlier == later:
        return True
    return any(
        order[earlier] <= order[later]
        for order in (_ORDER, _SHELF)
        if earlier in order and later in order
    )


def contract_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How many of each contract's invariants were planned, and what they came to."""
    found = []
    for contract in CONTRACTS:
        own = [row for row in rows if row["contract"] == contract]
        if not own:
            continue
        statuses = Counter(row["status"] for row in own)
        found.append(
            {
                "contract": contract,
                "planned": len(own),
                "executed": sum(row["executed"] > 0 for row in own),
                "failed": statuses["fail"],
                "not_exercised": statuses["not-exercised"],
                "incompetent": statuses["incompetent"],
                "expected_to_fail": statuses["expected-failure"],
            }
        )
    return found


def capabilities(tally: Tally) -> list[dict[str, Any]]:
    """Every stage: whether the engine has it, how often it was asked, and what it said instead."""
    record = tally.record
    troubles = Counter(crash.stage for _, crash in tally.crashes if crash.asked)
    return [
        {
            "stage": stage,
            "present": stage in record.present,
            "calls": record.calls[stage],
            "unsupported": sum(record.unsupported.get(stage, {}).values()),
            "reasons": sorted(record.unsupported.get(stage, {})),
            "incidents": troubles[stage],
        }
        for stage in STAGES
    ]


def incidents(tally: Tally) -> list[dict[str, Any]]:
    """What went wrong, each kind of it once, on the first coordinate that showed it.

    A stage that is not asked any more has gone wrong no more often for that.
    """
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for coordinate, crash in tally.crashes:
        stage = crash.stage or crash.section
        entry = found.setdefault(
            (crash.kind, stage, crash.error),
            {
                "kind": crash.kind,
                "stage": stage,
                "coordinate": coordinate,
                "text": crash.error,
                "times": 0,
            },
        )
        entry["times"] += crash.asked
    return [entry for entry in found.values() if entry["times"]]


def unasked(failed: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Which of these failed codes are of no contract that was asked for, and so in no row.

    That a lawful round is refused is told whatever the contracts.
    """
    return set(failed) - {row["code"] for row in rows}


def verdict(
    tally: Tally, rows: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]
) -> Verdict:
    """Fail by a finding or an expectation that does not hold; inconclusive by an incident or none.

    What an engine has no stage for is no reason against a pass, but something must be executed.
    """
    statuses = Counter(row["status"] for row in rows)
    if statuses["fail"] or any(entry["outcome"] not in LAWFUL for entry in expected):
        return Verdict.FAIL
    known = {entry["code"] for entry in expected if entry["outcome"] == "as-expected"}
    if unasked(tally.failed, rows) - known:
        return Verdict.FAIL
    if tally.crashes or not any(row["executed"] for row in rows):
        return Verdict.INCONCLUSIVE
    return Verdict.PASS
