"""Replaying a finding: the same coordinate, the same target, and whether the same rule breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from medusa_conformance.check import Judged, check_traces, judge_one
from medusa_conformance.finding_file import finding_document
from medusa_conformance.folding import Cause
from medusa_conformance.incident import Incident
from medusa_conformance.runner import (
    Setting,
    Tally,
    judge_coordinates,
    mutations,
    reference_factory,
)
from medusa_conformance.targets import Target
from medusa_conformance.verdicts import concerns, stage_of
from medusa_oracles import oracles
from medusa_spec.coordinate import Coordinate
from medusa_spec.documents import load_document, validate
from medusa_spec.errors import InputError
from medusa_spec.loading import coordinate_from
from medusa_spec.registry import CONTRACTS, invariants


class Outcome(IntEnum):
    """What became of a finding; each is the exit code of `replay`."""

    FIXED = 0
    STILL_FAILING = 1
    ERROR = 2


@dataclass(frozen=True, slots=True)
class Replay:
    """A replayed finding: its file, what became of it, and what was seen this time."""

    file: Path
    code: str | None
    outcome: Outcome
    text: str
    finding: Mapping[str, Any] | None


def replay(file: Path, timeout: float) -> Replay:
    """Judge a finding's target on its coordinate once more.

    A file that is no finding, a target that cannot be had, one that went wrong where the rule looks
    and a rule that was not executed are errors: neither fixed nor failing.
    """
    code = None
    try:
        document = load_document(file)
        validate(document, "finding", str(file))
        code = document["code"]
        if code not in invariants():
            raise InputError(str(file), "code", f"{code} is no invariant of this release")
        coordinate = coordinate_from(document["coordinate"], str(file))
        tally = _judge(document, coordinate, timeout)
    except (InputError, Incident) as error:
        return Replay(file, code, Outcome.ERROR, str(error), None)
    found = next((f for f in tally.findings if f.finding.code == code), None)
    if found is not None:
        text = f"{code} is still broken: {found.finding.message}"
        again = finding_document(
            Cause(found, 1, {}), 1, document["target"], _setting(document), document["seed"]
        )
        return Replay(file, code, Outcome.STILL_FAILING, text, again)
    stages = {stage_of(name) for name in oracles()[code].needs}
    # What broke the rule may be behind a crash, where the rule looks before anywhere else.
    crashes = [crash for _, crash in tally.crashes]
    near = [crash for crash in crashes if concerns(crash, stages)]
    if near or (crashes and not tally.executed[code]):
        crash = (near or crashes)[0]
        text = f"{crash.kind} in {crash.stage or crash.section}: {crash.error}"
        return Replay(file, code, Outcome.ERROR, text, None)
    if not tally.executed[code]:
        return Replay(file, code, Outcome.ERROR, f"{code} was not executed this time", None)
    return Replay(file, code, Outcome.FIXED, f"{code} holds on this coordinate", None)


def _setting(document: Mapping[str, Any]) -> Setting:
    return Setting(document["device"], document["dtype"], CONTRACTS)


def _judge(document: Mapping[str, Any], coordinate: Coordinate, timeout: float) -> Tally:
    target = document["target"]
    # A lawful round that is refused leaves others nothing to judge, so every contract is looked at.
    everything = frozenset(CONTRACTS)
    if target["kind"] == "trace":
        judged: Judged = check_traces(Path(target["path"]), CONTRACTS)
        return judged.tally
    if target["kind"] in ("reference", "mutant"):
        mutation = None
        if target["kind"] == "mutant":
            if target["id"] not in mutations():
                raise InputError("target", "id", f"{target['id']} is no mutant of this release")
            mutation = mutations()[target["id"]]
        setting = _setting(document)
        return judge_coordinates(reference_factory(setting, mutation), [coordinate], setting)
    argv = (target["text"],) if target["kind"] == "module" else tuple(target["argv"])
    again = Target(target["kind"], argv, Path(target["folder"]), timeout)
    return judge_one(again, coordinate, everything)
