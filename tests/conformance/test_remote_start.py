"""How an engine's process begins: what is told where it does not, and how long it may take."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import medusa_manifests
from medusa_conformance import remote as remote_module
from medusa_conformance.incident import Incident
from medusa_conformance.remote import Remote
from medusa_spec import InputError

COORDINATE = medusa_manifests.load("six-node")
CAPABILITIES = {
    "protocol": 1,
    "name": "child",
    "version": None,
    "language": "Python",
    "stages": ["node_count"],
    "dialect": {},
    "arrays": "list",
}
ENGINE = f"""
import json, os, sys, time
FIRST
for line in sys.stdin:
    request = json.loads(line)
    answer = {CAPABILITIES!r} if request["command"] == "capabilities" else {{}}
    if request["command"] == "stage":
        STAGE
    print(json.dumps({{"id": request["id"], "answer": answer}}), flush=True)
"""


def written(folder: Path, first: str, stage: str = "pass") -> list[str]:
    """The command of an engine that does something first, and something where it is asked."""
    script = folder / "engine.py"
    script.write_text(ENGINE.replace("FIRST", first).replace("STAGE", stage), "utf-8")
    return [sys.executable, "-I", "-S", str(script)]


def engine_of(remote: Remote) -> Any:
    return remote.engine(COORDINATE, COORDINATE.capacity)


@pytest.mark.parametrize(
    ("first", "kind", "text"),
    [
        ("print('Welcome!', flush=True)\ntime.sleep(60)", "rubbish", "reply: line 1 column 1: not"),
        ("sys.exit('no weights')", "exit", "ended with status 1; no weights"),
        ("sys.stdin.readline()\ntime.sleep(60)", "hang", "no reply within 0.2 s"),
        (
            'sys.stdin.readline()\nprint(\'{"id": 1, "answer": {}}\', flush=True)',
            "rubbish",
            "reply: 'protocol' is a required property",
        ),
    ],
)
def test_a_bad_start(
    first: str, kind: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "START_SECONDS", 0.2 if kind == "hang" else 10.0)
    with Remote(written(tmp_path, first), tmp_path, 0.1) as remote:
        for _ in range(2):
            with pytest.raises(Incident) as caught:
                remote.describe()
            assert (caught.value.kind, caught.value.stage) == (kind, "capabilities")
            assert caught.value.text.startswith(text)


def test_the_start_gets_longer_than_a_stage(tmp_path: Path) -> None:
    argv = written(tmp_path, "time.sleep(1)", "time.sleep(60)")
    with Remote(argv, tmp_path, 0.5) as remote:
        assert remote.describe().name == "child"
        with pytest.raises(Incident, match=r"^hang in node_count"):
            engine_of(remote).node_count([3])


def test_an_error_instead_of_capabilities_is_a_usage_error(tmp_path: Path) -> None:
    reply = json.dumps({"id": 1, "error": "mine: cannot import\nmine"})
    with (
        Remote(written(tmp_path, f"input()\nprint({reply!r}, flush=True)"), tmp_path) as remote,
        pytest.raises(InputError, match=r"^target: mine: cannot import\\nmine$"),
    ):
        remote.describe()


def test_an_engine_that_is_not_to_be_had_again_is_an_incident(tmp_path: Path) -> None:
    reply = json.dumps({"id": 1, "error": "no lock"})
    again = f"if os.path.exists('once'):\n    input()\n    print({reply!r})\n    sys.exit()"
    argv = written(tmp_path, again, "open('once', 'w')\n        os._exit(1)")
    with Remote(argv, tmp_path) as remote:
        engine = engine_of(remote)
        with pytest.raises(Incident, match=r"^exit in node_count"):
            engine.node_count([3])
        with pytest.raises(Incident, match=r"^crash in capabilities: no lock$"):
            engine_of(remote)


def test_what_cannot_be_started_is_a_usage_error(tmp_path: Path) -> None:
    for argv, folder, named in (
        ([str(tmp_path / "absent")], tmp_path, tmp_path / "absent"),
        ([str(tmp_path)], tmp_path, tmp_path),
        ([sys.executable], tmp_path / "nowhere", tmp_path / "nowhere"),
        (["null\0byte"], tmp_path, "null\\x00byte"),
    ):
        with pytest.raises(InputError) as caught:
            Remote(argv, folder).describe()
        assert str(caught.value).startswith(f"{named}: cannot be started: ")
