"""The tables of `spec/README.md`: the stages, the arrays of a trace, and their shapes."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import medusa_manifests
import medusa_oracles
from medusa_conformance import runner
from medusa_oracles import oracles
from medusa_reference_engine import ReferenceEngine
from medusa_spec.coordinate import Coordinate
from medusa_spec.findings import AXES, Verdict
from medusa_spec.registry import CONTRACTS, of_contract
from medusa_spec.stages import STAGES

ORACLES = Path(medusa_oracles.__file__).parent
README = (Path(__file__).parents[2] / "spec" / "README.md").read_text("utf-8")
WHEN = ("before", "after")
# Read where they are there, and needed by no oracle.
OPTIONAL = {
    "heads.given.projection",
    "heads.owned",
    "plain.state.projection",
    "commit.frontier.heads",
    *(f"training.{n}" for n in ("state.lm_head", "state.projection", "gradient.projection")),
    "training.skipped",
    *(f"checkpoint.held.{name}" for name in ("bias", "projection")),
    *(f"checkpoint.loaded.{name}" for name in ("bias", "lm_head", "projection")),
    *(f"checkpoint.{name}" for name in ("identity", "saver_logits", "loader_logits")),
    *(f"checkpoint.{name}" for name in ("loader_hidden", "loader_heads")),
    *(f"checkpoint.frontier.{name}" for name in ("target", "heads")),
    *(f"checkpoint.{when}.{of}" for when in WHEN for of in ("logits", "head_logits")),
    *(f"refusal.{name}" for name in ("before", "after", "length_before", "length_after")),
}


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without its two head lines."""
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = section[section.index("\n|") + 1 :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def arrays() -> dict[str, str | None]:
    """The shape of every trace name, `None` for a document."""
    found: dict[str, str | None] = {}
    for prefix, given, observed in table("The arrays of a trace"):
        for field, shape in re.findall(r"`([a-z_.]+)(?: \[([^\]]*)\])?`", given + observed):
            name = f"{prefix.strip('`')}.{field}"
            assert name not in found
            bracketed = f"`{field} [" in given + observed
            found[name] = shape if bracketed else None
    return found


def test_the_arrays_are_those_that_oracles_need() -> None:
    needed = {n for entry in oracles().values() for n in (*entry.needs, *entry.instead)}
    assert set(arrays()) - OPTIONAL == needed
    assert set(arrays()) >= OPTIONAL


@pytest.mark.parametrize("mode", ["greedy", "fast-typical"])
def test_the_shapes_are_those_of_a_lawful_round(
    mode: str, coordinate: Any, lawful_trace: Any, literal: Any
) -> None:
    planned = coordinate(((0,), (1,), (2,), (0, 0), (1, 0), (1, 0, 2)), mode)
    trace = lawful_trace(planned, literal, ((0, 2), (2, 5)))
    sizes = {
        **{"P": 5, "N": 7, "K": 3, "TOPK": 3, "R": 3, "W": 4},
        "G": int(trace["selection.accepted"]) + 1,
        "V": planned.model.vocabulary,
        "L": planned.model.layers,
        "H_kv": planned.model.kv_heads,
        "d_h": planned.model.head_dim,
        "C": planned.capacity,
    }
    shapes = arrays()
    for name, array in trace.arrays.items():
        written = shapes[name]
        assert written is not None, name
        dimensions = written.split(", ") if written else []
        assert array.shape == tuple(_size(text, sizes) for text in dimensions), name
    assert all(shapes[name] is None for name in trace.documents)


def _size(text: str, sizes: dict[str, int]) -> int:
    """A dimension such as `1 + K*TOPK` or `W - 1`, with its symbols replaced."""
    total, sign = 0, 1
    for part in text.split():
        if part in "+-":
            sign = {"+": 1, "-": -1}[part]
            continue
        product = 1
        for factor in part.split("*"):
            product *= int(factor) if factor.isdigit() else sizes[factor]
        total += sign * product
    return total


def test_the_chapters_are_listed_with_their_clauses() -> None:
    expected = []
    for contract in CONTRACTS:
        listed = of_contract(contract)
        span = f"{listed[0].clause}-{listed[-1].clause}"
        expected.append([f"[{contract}]({contract}.md)", span])
    assert [row[:2] for row in table("How to read it")] == expected


def test_the_axes_are_those_by_which_oracles_place_their_findings() -> None:
    rows = [[row[0].strip("`"), row[1]] for row in table("The coordinates of a finding")]
    assert rows == [list(item) for item in AXES.items()]
    # What an oracle emits is held to the table where each is proved; here, that none is idle.
    source = "".join(path.read_text("utf-8") for path in ORACLES.glob("*.py"))
    assert [axis for axis in AXES if f'"{axis}"' not in source] == []


def test_the_stages_are_methods_of_an_engine() -> None:
    stages = [row[0].strip("`") for row in table("The engine protocol")]
    public = [name for name in vars(ReferenceEngine) if not name.startswith("_")]
    makers = {"seeded", "from_checkpoint", "capacity", "name", "sample_tokens"}
    assert set(stages) == set(public) - makers


def test_the_stages_give_what_their_answers_hold() -> None:
    rows = table("The engine protocol")
    assert [row[0].strip("`") for row in rows] == list(STAGES)
    for name, taken, given, _ in rows:
        stage = STAGES[name.strip("`")]
        held = [f.name for f in fields(stage.answer)] if is_dataclass(stage.answer) else []
        assert re.findall(r"`(\w+)`", given) == held
        assert len(re.sub(r"`.*?`", "", taken).split(", ") if taken else []) == len(stage.arguments)


def test_the_words_of_a_verdict_are_explained() -> None:
    words = dict(table("Words"))
    assert set(re.findall(r"`(\w+)`", words["verdict"])) == {verdict.value for verdict in Verdict}
    assert {"incident", "capability", "target", "dialect"} <= set(words)


def test_an_engine_of_ones_own_is_judged_as_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = README.split("### Judging an engine of your own\n")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert code is not None

    def factory(coordinate: Coordinate, capacity: int) -> ReferenceEngine:
        return ReferenceEngine.seeded(coordinate.model, coordinate.heads, capacity)

    # One small coordinate stands for all of them.
    monkeypatch.setattr(runner, "frozen_coordinates", lambda: [medusa_manifests.load("six-node")])
    exec(code[1], {"MyEngine": factory})
    assert re.fullmatch(
        r"[0-9]{2} invariants executed, 0 failed\n0 incidents \[\]\n", capsys.readouterr().out
    )
