"""A field that is not given was not observed: no finding, no incident, and no pass by it either."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from medusa_conformance.runner import Setting, Tally, judge_coordinates
from medusa_manifests import load
from medusa_reference_engine.engine import ReferenceEngine
from medusa_spec.coordinate import Coordinate
from medusa_spec.stages import STAGES

README = (Path(__file__).parents[2] / "spec" / "README.md").read_text("utf-8")

FIELDS = [
    (name, f.name)
    for name, stage in STAGES.items()
    if is_dataclass(stage.answer)
    for f in fields(stage.answer)
]
ROWS = re.findall(r"^\| `(\w+)` \|(.*)$", README, re.MULTILINE)
NEEDED = [(name, field) for name, row in ROWS for field in re.findall(r"\*\*`(\w+)`\*\*", row)]
"""What the table of the engine protocol prints in bold."""


class Reticent:
    """An engine whose answers to one stage lack one field. It remembers what it does not show."""

    def __init__(self, engine: Any, stage: str, field: str) -> None:
        self._engine, self._stage, self._field = engine, stage, field
        self._hidden: Any = None

    def __getattr__(self, name: str) -> Any:
        stage = getattr(self._engine, name)

        def call(*given: Any) -> Any:
            answer = stage(*map(self._whole, given))
            if name != self._stage or not self._field:
                return answer
            self._hidden = getattr(answer, self._field)
            names = [f.name for f in fields(answer) if f.name != self._field]
            return {shown: getattr(answer, shown) for shown in names}

        return call

    def _whole(self, given: Any) -> Any:
        # Of a stage that is handed on: its own answer comes back without what was left out.
        if is_dataclass(given) and getattr(given, self._field, ...) is None:
            return replace(given, **{self._field: self._hidden})
        return given


@cache
def judged(stage: str, field: str) -> Tally:
    def make(given: Coordinate, capacity: int) -> Any:
        engine = ReferenceEngine.seeded(given.model, given.heads, capacity)
        return Reticent(engine, stage, field)

    names = ["six-node", "posterior-fast-typical"]
    if stage == "search_tree":
        names.append("two-heads")
    if stage == "cost":
        names.append("cost-shared-heads")
    if stage == "publish_claims":
        names.append("typed-run")
    if stage in ("law", "sample"):
        names.append("law-rejection")
    if stage.endswith("_checkpoint"):
        names.append("checkpoint-independent")
    coordinates = [load(name) for name in names]
    return judge_coordinates(make, coordinates, Setting("cpu", "float64"))


@pytest.mark.parametrize(("stage", "field"), FIELDS)
def test_only_a_needed_field_is_missed(stage: str, field: str) -> None:
    tally = judged(stage, field)
    assert tally.failed == {}
    said: Mapping[str, str] = {crash.stage: crash.kind for _, crash in tally.crashes}
    # Without its only field an answer is none at all.
    kind = "rubbish" if len(fields(STAGES[stage].answer)) > 1 else "crash"
    assert said == ({stage: kind} if (stage, field) in NEEDED else {})


def test_what_is_printed_in_bold_is_a_field() -> None:
    assert NEEDED
    assert set(NEEDED) < set(FIELDS)


@pytest.mark.parametrize(
    ("stage", "field", "idle"),
    [
        ("propose", "packed", "PROPOSAL.GATHER"),
        ("commit", "tokens", "COMMIT.LENGTH"),
        ("forward", "logits", "VERIFICATION.PATH_LOGITS"),
        ("admit", "document", "COORDINATE.POLICY_COMPLETE"),
        ("admit", "rows", "COORDINATE.DOMAINS"),
    ],
)
def test_what_was_not_observed_is_not_executed(stage: str, field: str, idle: str) -> None:
    assert judged("label", "").executed[idle]
    assert not judged(stage, field).executed[idle]
