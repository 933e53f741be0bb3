"""The tables of `spec/line-protocol.md` are the stages', and its messages are lawful and true."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from medusa_conformance import incident, remote
from medusa_spec import wire
from medusa_spec.documents import schema_errors
from medusa_spec.stages import STAGES
from medusa_spec.wire_array import DIMENSIONS, DTYPES, LINE_LIMIT, WORDS, Place, read_array

HOUSE = Path(__file__).parents[2]
CHAPTER = (HOUSE / "spec" / "line-protocol.md").read_text("utf-8")
ENGINE = HOUSE / "conformance" / "examples" / "tree_engine.mjs"


def documents() -> list[Any]:
    """Every document of every example, in order."""
    found = []
    for block in re.findall(r"```json\n(.*?)```", CHAPTER, re.DOTALL):
        rest = block.strip()
        while rest:
            document, end = json.JSONDecoder().raw_decode(rest)
            found.append(document)
            rest = rest[end:].strip()
    return found


MESSAGES = [document for document in documents() if "id" in document]
EXCHANGES = list(zip(MESSAGES[::2], MESSAGES[1::2], strict=True))


def table(head: str) -> list[list[str]]:
    """The rows of the table whose head begins with a word, without its two head lines."""
    lines = CHAPTER.split(f"| {head} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names(cell: str) -> set[str]:
    return set(re.findall(r"`([a-z0-9_]+)`", cell))


@pytest.mark.parametrize(("request_", "reply"), EXCHANGES, ids=lambda message: str(message["id"]))
def test_the_messages_keep_their_schemas(request_: Any, reply: Any) -> None:
    assert schema_errors(request_, "line_request") == []
    assert schema_errors(reply, "line_reply") == []
    assert request_["id"] == reply["id"]
    # As they are read on a line, by either side.
    stage = wire.read_request(json.dumps(request_).encode()).get("stage")
    answer = wire.read_reply(json.dumps(reply).encode()).get("answer")
    if request_["command"] == "capabilities":
        wire.read_capabilities(answer)
    if stage is not None:
        wire.read_arguments(stage, request_["arguments"])
        if answer is not None:
            wire.read_answer(stage, answer)


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_the_replies_are_those_of_the_engine_that_is_shown() -> None:
    in_order = sorted(EXCHANGES, key=lambda exchange: exchange[0]["id"])
    lines = "".join(json.dumps(asked) + "\n" for asked, _ in in_order)
    engine = subprocess.run(
        ["node", str(ENGINE)], input=lines, capture_output=True, text=True, check=True, timeout=60
    )
    assert [json.loads(line) for line in engine.stdout.splitlines()] == [
        said for _, said in in_order
    ]


def test_the_two_forms_of_an_array_are_of_the_same_numbers() -> None:
    listed, packed = (document for document in documents() if "id" not in document)
    place = Place("chapter", "array")
    assert read_array(listed, place).tolist() == read_array(packed, place).tolist() == [1.0, -2.0]


def test_every_command_is_shown() -> None:
    shown = {asked["command"] for asked, _ in EXCHANGES}
    assert shown == {"capabilities", "start", "stage", "stop"}


def test_the_stages_are_listed_with_arguments_and_answers() -> None:
    listed = {}
    for stage, arguments, answer in table("stage"):
        listed[stage.strip("`")] = (
            tuple(re.findall(r"`([a-z_]+)`", arguments)),
            tuple(re.findall(r"`([a-z_]+)`", answer)) or answer,
        )
    words = {int: "an integer", object: "a document"}
    assert listed == {
        name: (
            stage.arguments,
            tuple(f.name for f in fields(stage.answer))
            if is_dataclass(stage.answer)
            else words[stage.answer],
        )
        for name, stage in STAGES.items()
    }


def test_the_forms_are_listed() -> None:
    declared: dict[str, set[str]] = {}
    for stage in STAGES.values():
        for f in fields(stage.answer) if is_dataclass(stage.answer) else ():
            declared.setdefault(str(f.type), set()).add(f.name)
    rows = {
        form: names(re.sub(r"\(.*?\)", "", cell).split(" of `")[0]) for form, cell in table("form")
    }
    # What answers hold follows from their types; what is asked with is named beside it.
    assert rows["an integer of 64 bits"] == declared["int"] | {
        "topk",
        "sentinel",
        "how_many",
        "heads",
        *("step", "seed", "count"),
    }
    assert rows["a list of integers"] == declared["tuple[int, ...]"] | {"branching", "prefix"}
    assert rows["a list of lists of integers"] == declared["tuple[RankPath, ...]"]
    assert rows["an object of arrays"] == {"frontier", "state", "gradient"}
    assert rows["an object"] == {
        *("tree", "compile_tree", "policy", "training", "release", "calibration", "search"),
        *("workload", "cost"),
        *("facts", "claims"),
        "exactness",
        *declared["Mapping[str, str]"],
        *("identity", "claim"),
    }
    assert rows["a string"] == declared["str"] | {"retrieval_order", "folder"}
    assert rows["a list of strings"] | {"paths"} >= declared["tuple[str, ...]"]
    assert rows["any JSON"] == {
        *("document", "rows", "decisions", "skipped", "groups"),
        *("figures", "policies", "lineage", "scope"),
    }
    assert rows["an integer or `null`"] == {"end_of_sequence"}
    asked = {name for stage in STAGES.values() for name in stage.arguments}
    arrays = {"hidden", "owned", "packed", "candidates", "path_logits"}
    assert asked - set().union(*rows.values()) == arrays
    text = re.sub(r"\s+", " ", CHAPTER)
    for form in ("frontier", "state"):
        shown = re.search(rf"`{form}` \((.*?)\)", text)
        assert shown is not None
        kind = {"frontier": STAGES["prefill"].answer, "state": wire.HeadState}[form]
        assert re.findall(r"`(\w+)`", shown[1]) == [f.name for f in fields(kind)]


def test_the_limits_are_those_that_hold() -> None:
    text = re.sub(r"\s+", " ", CHAPTER)
    assert LINE_LIMIT == 64 * 2**20
    assert f"at most {LINE_LIMIT // 2**20} MiB" in text
    assert f"at most {DIMENSIONS} sizes" in text
    for word in WORDS:
        assert f'`"{word}"`' in text
    named = names(CHAPTER.split("- `dtype` is")[1].split(". A")[0])
    assert named == set(DTYPES) - {"int16", "int32", "uint16", "uint32"}
    timeout = remote.Remote.__init__.__defaults__
    assert timeout == (30.0, None)
    assert f"A reply has {timeout[0]:g} seconds; the first one of a process has" in text
    assert f"has {remote.START_SECONDS:g}, in which to load" in text


def test_the_incidents_are_listed() -> None:
    assert {row[0].strip("`") for row in table("kind")} == set(incident.KINDS)
