"""A Python engine behind the line protocol: what it answers, raises and prints."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import medusa_manifests
from medusa_conformance import serve
from medusa_conformance.incident import Incident
from medusa_conformance.remote import Remote
from medusa_conformance.runner import Setting, reference_factory
from medusa_spec import InputError, Refused, Unsupported
from medusa_spec.coordinate import Release, Training
from medusa_spec.stages import STAGES, HeadState, answer_of

COORDINATE = medusa_manifests.load("six-node")

Serve = Callable[..., Remote]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A remote that serves `mine:Engine` of the text of a module; it is closed in the end."""
    # The child is another interpreter, and pytest's own path is not inherited.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    started: list[Remote] = []

    def begin(text: str, target: str = "mine:Engine") -> Remote:
        (tmp_path / "mine.py").write_text(text, "utf-8")
        argv = [sys.executable, "-m", "medusa_conformance.serve", target]
        started.append(Remote(argv, tmp_path))
        return started[-1]

    yield begin
    for remote in started:
        remote.close()


def engine_of(remote: Remote) -> Any:
    return remote.engine(COORDINATE, COORDINATE.capacity)


# What it answers


def test_every_stage_answers_as_it_does_in_process(served: Serve, tmp_path: Path) -> None:
    remote = served(
        "from medusa_conformance.runner import Setting, reference_factory\n"
        "factory = reference_factory(Setting('cpu', 'float64'))\n",
        "mine:factory",
    )
    far = engine_of(remote)
    near = reference_factory(Setting("cpu", "float64"))(COORDINATE, COORDINATE.capacity)
    policy, topk = COORDINATE.policy, COORDINATE.topk
    document = COORDINATE.document()
    asked = set()

    def ask(stage: str, *given: Any) -> Any:
        asked.add(stage)
        kind = STAGES[stage].answer
        ours = answer_of(kind, getattr(near, stage)(*given))
        theirs = answer_of(kind, getattr(far, stage)(*given))
        assert plainly(theirs) == plainly(ours), stage
        return ours

    ask("admit", document)
    generator = np.random.default_rng(3)
    state = HeadState(
        generator.normal(size=(2, 1, 8, 8)),
        generator.normal(size=(2, 1, 8)),
        generator.normal(size=(16, 8)),
        None,
    )
    ask("apply_heads", state, generator.normal(size=(1, 2, 8)))
    ask("align_heads", np.array([[1, 2, 3]]), np.array([[True, False, True]]), 2)
    calibration = medusa_manifests.load("ten-paths").search
    ask("search_tree", calibration)
    workload = medusa_manifests.load("cost-nine-row").cost
    ask("cost", workload)
    exactness = medusa_manifests.load("law-row-draw").exactness
    ask("law", exactness)
    ask("sample", exactness, 5, 20)
    ask("train_step", one_step(COORDINATE.heads), 0)
    release = Release("example/base", "5a0f", "example/base@5a0f", "medusa-1")
    folders = [tmp_path / name for name in ("near", "far")]
    for folder in folders:
        folder.mkdir()
    saved = [
        answer_of(STAGES["save_checkpoint"].answer, engine.save_checkpoint(folder, release, None))
        for engine, folder in zip((near, far), folders, strict=True)
    ]
    asked.add("save_checkpoint")
    assert plainly(saved[0]) == plainly(saved[1])
    for folder in folders[::-1]:
        ask("load_checkpoint", folder, release)
    ask("publish_claims", medusa_manifests.load("typed-run").claims)
    paths = COORDINATE.paths
    tree = ask("compile_tree", paths, topk, policy.retrieval_order, policy.sentinel)
    ask("node_count", (3, 2))
    frontier = ask("prefill", COORDINATE.prefix)
    proposal = ask("propose", tree, frontier, topk, policy.sentinel)
    verified = ask("verify", tree, proposal.packed)
    selection = ask("select", proposal.candidates, verified.path_logits, policy)
    ask("label", policy)
    ask("commit", selection.path, selection.accepted, None)
    ask("cache")
    ask("forward", [5, 7, 11])
    ask("generate", COORDINATE.prefix, 3, paths, topk, policy, None)
    assert asked == STAGES.keys()
    assert remote.describe().name == "reference"


def one_step(heads: int) -> Training:
    """Medusa-1 on four tokens."""
    tokens, owned = ((1, 2, 3, 4),), ((True, False, True, True),)
    return Training("medusa-1", tokens, owned, (0.8,) * heads, 1.0, 1e-3, 0.0, "two-stage", 0, 1, 0)


def plainly(value: Any) -> Any:
    """A value with its arrays as dtype, shape and bytes, so that they can be compared by `==`."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plainly(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: plainly(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plainly(item) for item in value]
    return value


def test_lists_and_missing_fields_are_taken_as_they_are(served: Serve) -> None:
    engine = engine_of(
        served(
            "from types import SimpleNamespace\n"
            "class Engine:\n"
            "    def __init__(self, coordinate, capacity):\n"
            "        self.model, self.capacity = coordinate.model, capacity\n"
            "    def compile_tree(self, paths, topk, order, sentinel):\n"
            "        return {'slots': [0, 1 + topk], 'paths': [[], *paths], 'mask': None}\n"
            "    def prefill(self, tokens):\n"
            "        return SimpleNamespace(target=[0.5] * self.model.vocabulary, heads=None)\n"
            "    def label(self, policy):\n"
            "        return {'claim': policy.mode, 'rows': (1, self.capacity)}\n"
        )
    )
    tree = engine.compile_tree([(0,)], 3, "canonical", -1)
    assert tree["slots"].tolist() == [0, 4]
    assert (tree["paths"], tree["mask"]) == (((), (0,)), None)
    assert engine.prefill([1])["target"].tolist() == [0.5] * COORDINATE.model.vocabulary
    expected = {"claim": COORDINATE.policy.mode, "rows": [1, COORDINATE.capacity]}
    assert engine.label(COORDINATE.policy) == expected


def test_sessions_do_not_share_an_engine(served: Serve) -> None:
    remote = served(
        "class Engine:\n"
        "    def __init__(self, coordinate, capacity): self.seen = 0\n"
        "    def node_count(self, branching):\n"
        "        self.seen += 1\n"
        "        return self.seen\n"
    )
    one, other = engine_of(remote), engine_of(remote)
    assert [one.node_count([]), one.node_count([]), other.node_count([])] == [1, 2, 1]


NOISE = """
import os, subprocess, sys
print("imported")
class Engine:
    def __init__(self, coordinate, capacity): print("made", flush=True)
    def node_count(self, branching):
        print("counting")
        os.write(1, b"{}\\n")
        subprocess.run(["echo", "from a child"], check=True)
        return 21 + len(sys.stdin.read())
"""


def test_what_an_engine_prints_is_no_reply_and_what_it_reads_no_request(served: Serve) -> None:
    engine = engine_of(served(NOISE))
    assert [engine.node_count([3]), engine.node_count([3])] == [21, 21]


# What it can do


def test_a_class_shows_its_stages_without_being_called(served: Serve) -> None:
    said = served(
        "class Engine:\n"
        "    name, version, dialect = 'Mine', '2.1', {'order': ('a', 1)}\n"
        "    cache = None\n"
        "    def __init__(self, coordinate, capacity): raise RuntimeError('no')\n"
        "    def verify(self, tree, packed): ...\n"
        "    def select(self, candidates, path_logits, policy): ...\n"
        "    def helper(self): ...\n"
    ).describe()
    assert (said.name, said.version, said.language) == ("Mine", "2.1", "Python")
    assert said.stages == {"verify", "select"}
    assert said.dialect == {"order": ["a", 1]}
    assert said.arrays == "base64"


MAKES = """
from medusa_spec import Unsupported
class Made:
    def propose(self, tree, frontier, topk, sentinel): ...
def make(coordinate, capacity):
    assert capacity == coordinate.capacity
    if coordinate.name == "six-node":
        raise Unsupported("not that one")
    return Made()
"""


def test_a_function_shows_the_stages_of_what_it_makes(served: Serve) -> None:
    said = served(MAKES, "mine:make").describe()
    assert (said.name, said.version, said.dialect) == ("mine:make", None, {})
    assert said.stages == {"propose"}


def test_a_stage_that_an_engine_turns_out_to_lack(served: Serve) -> None:
    remote = served(
        "class Engine:\n"
        "    def __init__(self, coordinate, capacity): self.cache = None\n"
        "    def cache(self): ...\n"
    )
    with pytest.raises(Unsupported, match="the engine has no stage cache"):
        engine_of(remote).cache()


# What it raises

RAISES = """
import sys
from medusa_spec import Refused, Unsupported
class Engine:
    def __init__(self, coordinate, capacity): ...
    def node_count(self, branching):
        return {
            0: lambda: 2.5,
            1: lambda: helper(),
            2: lambda: sys.exit("enough"),
            3: lambda: never(),
            4: lambda: "a" * 9999 + 1,
        }[branching[0]]()
    def prefill(self, tokens): raise Refused("too\\nlong")
    def forward(self, tokens): raise Unsupported("no forward")
    def propose(self, tree, frontier, topk, sentinel): return {"tabel": [1]}
    def label(self, policy): return {"claim": float("nan")}
    def cache(self): return {"length": 1, "backing": ["x"]}
def helper():
    raise KeyError("row\\n7")
def never():
    return never()
"""


def test_an_exception_is_told_in_one_line(served: Serve) -> None:
    engine = engine_of(served(RAISES))
    last = RAISES.splitlines().index('    raise KeyError("row\\n7")') + 1
    for number, text in (
        (0, r"TypeError: 'float' object cannot be interpreted as an integer$"),
        (1, rf"KeyError: 'row\\n7' \(mine\.py:{last}\)$"),
        (2, r"SystemExit: enough \(mine\.py:\d+\)$"),
        (3, r"RecursionError: .* \(mine\.py:\d+\)$"),
        (4, r"TypeError: can only concatenate str .* \(mine\.py:\d+\)$"),
    ):
        with pytest.raises(Incident, match=f"^crash in node_count: {text}"):
            engine.node_count([number])
    with pytest.raises(Refused, match=r"^too\\nlong$"):
        engine.prefill([1])
    with pytest.raises(Unsupported, match=r"^no forward$"):
        engine.forward([1])
    with pytest.raises(Incident, match=r"^crash in propose: TypeError: 'tabel' is no field of"):
        engine.propose({}, {}, 1, -1)
    with pytest.raises(Incident, match=r"^crash in label: reply: answer\.claim: NaN is no JSON"):
        engine.label(COORDINATE.policy)
    with pytest.raises(Incident, match=r"^crash in cache: TypeError: backing is no array"):
        engine.cache()


USAGE: dict[str, tuple[str, str, str]] = {
    "form": ("", "mine", "mine: is not module:attribute"),
    "module": ("", "absent:Engine", "absent:Engine: cannot import absent: ModuleNotFoundError: No"),
    "attribute": ("", "mine:Engine", "mine:Engine: mine has no attribute Engine"),
    "syntax": ("class:", "mine:Engine", "mine:Engine: cannot import mine: SyntaxError: invalid"),
    "raises": ("1 / 0", "mine:Engine", "mine:Engine: cannot import mine: ZeroDivisionError: div"),
    "exits": ("exit(5)", "mine:Engine", "mine:Engine: cannot import mine: SystemExit: 5"),
    "value": ("Engine = 3", "mine:Engine", "mine:Engine: is not callable"),
    "dialect": (
        "class Engine:\n    dialect = 3\n    def cache(self): ...",
        "mine:Engine",
        "mine:Engine: dialect: is no mapping",
    ),
    "factory": (
        "def make(coordinate): ...",
        "mine:make",
        "mine:make: makes no engine for the coordinate six-node: TypeError: make() takes 1",
    ),
    "unsupported": (
        "from medusa_spec import Unsupported\n"
        "def make(coordinate, capacity): raise Unsupported('wrong size')",
        "mine:make",
        "mine:make: makes no engine for six-node, root-only, chain-three, a31-nine-row: wrong size",
    ),
}


@pytest.mark.parametrize(("text", "target", "error"), USAGE.values(), ids=list(USAGE))
def test_a_target_that_is_no_engine_is_a_usage_error(
    served: Serve, text: str, target: str, error: str
) -> None:
    with pytest.raises(InputError) as caught:
        served(text, target).describe()
    assert str(caught.value).startswith(f"target: {error}")


def test_an_attribute_of_an_attribute(served: Serve) -> None:
    remote = served("class A:\n    class B:\n        def cache(self): ...", "mine:A.B")
    assert remote.describe().stages == {"cache"}


# What it is asked, without a process between


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> serve.Server:
    text = "class Engine:\n    def __init__(self, *given): ...\n    def cache(self): ..."
    (tmp_path / "asked_engine.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return serve.Server("asked_engine:Engine")


def start(**changes: Any) -> dict[str, Any]:
    document = COORDINATE.document()
    return {
        "id": 1,
        "command": "start",
        "session": 1,
        "coordinate": document,
        "capacity": 9,
    } | changes


@pytest.mark.parametrize(
    ("request_", "number", "error"),
    [
        (b"hello", None, "request: line 1 column 1: not JSON"),
        ({"id": 4}, None, "request: 'command' is a required property"),
        (start(coordinate={}), 1, "request: coordinate: 'name' is a required property"),
        ({"id": 5, "command": "stop", "session": 3}, 5, "request: session: 3 was never started"),
        (
            {"id": 6, "command": "stage", "session": 3, "stage": "cache", "arguments": {}},
            6,
            "request: session: 3 was never started",
        ),
    ],
)
def test_a_request_that_cannot_be_met(
    server: serve.Server, request_: Any, number: int | None, error: str
) -> None:
    line = request_ if isinstance(request_, bytes) else json.dumps(request_).encode()
    reply = server.reply(line)
    assert reply is not None
    assert reply.keys() == {"id", "error"}
    assert reply["id"] == number
    assert reply["error"].startswith(error)


def test_a_session_ends_when_it_is_stopped(server: serve.Server) -> None:
    stop = json.dumps({"id": 2, "command": "stop", "session": 1}).encode()
    assert server.reply(json.dumps(start()).encode()) == {"id": 1, "answer": {}}
    assert server.reply(stop) == {"id": 2, "answer": {}}
    again = server.reply(stop)
    assert again is not None
    assert "has ended" in again["error"]
    assert server.reply(b'{"id": 3, "command": "stop"}') is None


def test_one_argument_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve.main([]) == 3
    assert capsys.readouterr() == ("", f"{serve.USAGE}\n")
