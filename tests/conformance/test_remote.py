"""What a process may do instead of answering, and that the judge outlives all of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import medusa_manifests
from medusa_conformance.child import Child
from medusa_conformance.incident import Incident
from medusa_conformance.remote import Remote
from medusa_spec import Refused, Unsupported

COORDINATE = medusa_manifests.load("six-node")
CAPABILITIES = {
    "protocol": 1,
    "name": "child",
    "version": "0.9",
    "language": "Python",
    "stages": ["node_count", "prefill", "label"],
    "dialect": {"order": "own"},
    "arrays": "list",
}

# Everything is done well but `node_count`, which is where each test puts its misdeed.
ENGINE = f"""
import json, os, signal, subprocess, sys, time
CAPABILITIES = {CAPABILITIES!r}
sessions = []
def send(**reply):
    sys.stdout.write(json.dumps(reply) + "\\n")
    sys.stdout.flush()
def node_count(number, request):
MISDEED
for line in sys.stdin:
    request = json.loads(line)
    number, command = request["id"], request["command"]
    if command == "capabilities":
        send(id=number, answer=CAPABILITIES)
    elif command == "start":
        sessions.append(request["session"])
        send(id=number, answer={{}})
    elif command == "stop":
        if "session" not in request:
            break
        if request["session"] in sessions:
            sessions.remove(request["session"])
            send(id=number, answer={{}})
        else:
            send(id=number, error="it is not there any more")
    elif request["stage"] == "label":
        send(id=number, answer={{"pid": os.getpid(), "sessions": sessions}})
    else:
        node_count(number, request)
"""

Start = Callable[..., Remote]


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """A remote whose `node_count` does what is given; it is closed in the end."""
    started: list[Remote] = []

    def begin(misdeed: str = "send(id=number, answer=21)", timeout: float = 30) -> Remote:
        script = tmp_path / f"engine_{len(started)}.py"
        body = "\n".join(f"    {line}" for line in misdeed.splitlines())
        script.write_text(ENGINE.replace("MISDEED", body), "utf-8")
        started.append(Remote(python(script), tmp_path, timeout))
        return started[-1]

    yield begin
    for remote in started:
        remote.close()


def python(script: Path) -> list[str]:
    # Isolated and without site-packages: it starts in a few hundredths of a second.
    return [sys.executable, "-I", "-S", str(script)]


def engine_of(remote: Remote) -> Any:
    return remote.engine(COORDINATE, COORDINATE.capacity)


def pid_of(engine: Any) -> int:
    pid: int = engine.label(COORDINATE.policy)["pid"]
    return pid


def gone(pid: int) -> bool:
    """Whether there is no such process any more, not even one that nobody has waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def soon(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


# Lawful answers


def test_an_engine_is_described_and_asked(start: Start) -> None:
    remote = start()
    said = remote.describe()
    assert (said.name, said.version, said.language) == ("child", "0.9", "Python")
    assert said.stages == {"node_count", "prefill", "label"}
    assert (said.dialect, said.arrays) == ({"order": "own"}, "list")
    engine = engine_of(remote)
    assert engine.node_count([3, 2, 2]) == 21
    assert not hasattr(engine, "verify")
    with pytest.raises(AttributeError, match="no stage verify"):
        engine.verify(None, None)
    with pytest.raises(ValueError, match="argument"):
        engine.node_count()


def test_arguments_and_answers_travel(start: Start) -> None:
    remote = start(
        "tokens = request['arguments']['tokens']\n"
        "array = lambda data: {'dtype': 'float64', 'shape': [len(data)], 'data': data}\n"
        "send(id=number, answer={'target': array(tokens + ['NaN'])})"
    )
    frontier = engine_of(remote).prefill((5, 7))
    assert frontier["heads"] is None
    np.testing.assert_array_equal(frontier["target"], [5.0, 7.0, np.nan])


@pytest.mark.parametrize(("kind", "error"), [("refused", Refused), ("unsupported", Unsupported)])
def test_a_lawful_no(start: Start, kind: str, error: type[Exception]) -> None:
    engine = engine_of(start(f"send(id=number, {kind}='not\\nthis')"))
    for _ in range(2):
        with pytest.raises(error, match=r"^not\\nthis$"):
            engine.node_count([1])


def test_a_session_that_nobody_holds_is_stopped(start: Start) -> None:
    remote = start()
    kept, dropped = engine_of(remote), engine_of(remote)
    assert kept.label(COORDINATE.policy)["sessions"] == [1, 2]
    del dropped
    assert kept.label(COORDINATE.policy)["sessions"] == [1]
    other = engine_of(remote)
    assert other.label(COORDINATE.policy)["sessions"] == [1, 3]


def test_a_session_that_cannot_be_stopped_is_an_incident(start: Start) -> None:
    remote = start("sessions.clear()\nsend(id=number, answer=21)")
    kept, dropped = engine_of(remote), engine_of(remote)
    pid = pid_of(kept)
    dropped.node_count([1])
    del dropped
    with pytest.raises(Incident) as caught:
        kept.label(COORDINATE.policy)
    incident = caught.value
    said = ("crash", "stop", "it is not there any more", True)
    assert (incident.kind, incident.stage, incident.text, incident.asked) == said
    # It is told once, and the process goes on.
    assert pid_of(kept) == pid


def test_one_process_serves_many_engines(start: Start) -> None:
    remote = start()
    assert len({pid_of(engine_of(remote)) for _ in range(3)}) == 1


# Incidents: what is done, the kind, and what is told of it

SAID = "'{\"answer\": 21}'"
INCIDENTS: dict[str, tuple[str, str, str]] = {
    "error": ("send(id=number, error='ValueError: no\\nway')", "crash", r"ValueError: no\nway"),
    "exit": ("os._exit(3)", "exit", "ended with status 3"),
    "clean exit": ("sys.exit()", "exit", "ended with status 0"),
    "signal": ("os.kill(os.getpid(), signal.SIGKILL)", "exit", "was ended by SIGKILL"),
    "last words": (
        "os.write(2, b'one\\n' * 9999 + b'two\\n\\nthree\\x1b\\nfour\\n')\nos._exit(1)",
        "exit",
        r"ended with status 1; two; three\x1b; four",
    ),
    "named error": (
        "os.write(2, b'  raise Error(\"no\")\\nError: Cannot find it\\n  at x\\n}\\n\\nv20')\n"
        "os._exit(1)",
        "exit",
        "ended with status 1; Error: Cannot find it",
    ),
    "half a line": ("os.write(1, b'{\"id\"')\nos._exit(5)", "exit", "ended with status 5"),
    "closed output": ("os.close(1)\ntime.sleep(60)", "exit", "closed its standard output"),
    "grandchild": (
        "subprocess.Popen(['sleep', '60'])\nos._exit(4)",
        "exit",
        "ended with status 4",
    ),
    "hang": ("time.sleep(60)", "hang", "no reply within 0.5 s"),
    "busy": ("while True: pass", "hang", "no reply within 0.5 s"),
    "stubborn": (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\ntime.sleep(60)",
        "hang",
        "no reply within 0.5 s",
    ),
    "half a reply": ("os.write(1, b'{\"id\"')\ntime.sleep(60)", "hang", "no reply within 0.5 s"),
    "closed input": ("os.close(0)\ntime.sleep(60)", "hang", "no reply within 0.5 s"),
    "text": (
        "print('loading ' * 20, flush=True)",
        "rubbish",
        "reply: line 1 column 1: not JSON: Expecting value; the line begins "
        f"'{('loading ' * 20)[:60]}'",
    ),
    "megabytes of text": (
        "for _ in range(500): os.write(1, b'x\\n' * 50000)",
        "rubbish",
        "reply: line 1 column 1: not JSON: Expecting value; the line begins 'x'",
    ),
    "no id": (
        "send(answer=21)",
        "rubbish",
        f"reply: 'id' is a required property; the line begins {SAID}",
    ),
    "other id": (
        "send(id=number + 1, answer=21)",
        "rubbish",
        "reply: id: is not that of the request",
    ),
    "other form": (
        "send(id=number, answer='21')",
        "rubbish",
        'reply: answer: "21" is no integer of 64 bits',
    ),
}


@pytest.mark.parametrize(("misdeed", "kind", "text"), INCIDENTS.values(), ids=list(INCIDENTS))
def test_an_incident_has_a_kind_and_a_text(
    start: Start, misdeed: str, kind: str, text: str
) -> None:
    remote = start(misdeed, 0.5 if kind == "hang" else 30)
    engine = engine_of(remote)
    pid = pid_of(engine)
    with pytest.raises(Incident) as caught:
        engine.node_count([3])
    incident = caught.value
    assert (incident.kind, incident.stage, incident.text) == (kind, "node_count", text)
    assert str(incident) == f"{kind} in node_count: {text}"
    if kind == "crash":
        # The engine has failed, and its process has not.
        assert pid_of(engine) == pid
        return
    assert gone(pid)
    with pytest.raises(Incident) as again:
        engine.label(COORDINATE.policy)
    assert (again.value.kind, again.value.stage) == ("exit", "label")
    # The run goes on, in another process.
    assert pid_of(engine_of(remote)) != pid


def test_an_heir_that_goes_on_talking_keeps_nobody(start: Start) -> None:
    loud = "while true; do echo more >&2; done"
    engine = engine_of(start(f"subprocess.Popen({loud!r}, shell=True)\nos._exit(4)"))
    with pytest.raises(Incident, match=r"^exit in node_count: ended with status 4"):
        engine.node_count([3])


def test_a_reply_too_many_is_seen_where_the_next_is_due(start: Start) -> None:
    engine = engine_of(start("send(id=number, answer=21)\nsend(id=number, answer=22)"))
    assert engine.node_count([3]) == 21
    with pytest.raises(Incident, match=r"^rubbish in node_count: reply: id: is not that"):
        engine.node_count([3])


def test_an_endless_line_is_cut_off(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 4 * 1024 * 1024
    monkeypatch.setattr("medusa_conformance.child.LINE_LIMIT", limit)
    engine = engine_of(start("while True: os.write(1, b'x' * 65536)"))
    with pytest.raises(Incident, match=r"^endless in node_count: a line of more than 4,194,304"):
        engine.node_count([3])


def test_a_request_that_nobody_reads(start: Start) -> None:
    remote = start("send(id=number, answer=21)\ntime.sleep(60)", 0.5)
    engine = engine_of(remote)
    assert engine.node_count([3]) == 21
    began = time.monotonic()
    with pytest.raises(Incident, match=r"^hang in prefill: its request was not read within 0\.5 s"):
        engine.prefill([0] * 4_000_000)
    assert time.monotonic() - began < 10


def test_a_large_request_is_read_while_much_is_said(start: Start) -> None:
    remote = start(
        "os.write(2, b'e' * 3_000_000)\n"
        "answer = {'dtype': 'int64', 'shape': [400000], 'data': request['arguments']['tokens']}\n"
        "send(id=number, answer={'target': answer})"
    )
    tokens = list(range(400_000))
    assert engine_of(remote).prefill(tokens)["target"].tolist() == tokens


def test_a_flood_on_standard_error_stops_nobody(start: Start) -> None:
    engine = engine_of(start("os.write(2, b'noise\\n' * 500000)\nsend(id=number, answer=21)"))
    for _ in range(3):
        assert engine.node_count([3]) == 21


def test_the_heirs_of_a_process_end_with_it(start: Start, tmp_path: Path) -> None:
    heir = tmp_path / "heir"
    remote = start(
        f"heir = subprocess.Popen(['sleep', '60'])\nopen({str(heir)!r}, 'w').write(str(heir.pid))\n"
        "time.sleep(60)",
        timeout=0.5,
    )
    with pytest.raises(Incident, match=r"^hang"):
        engine_of(remote).node_count([3])
    # Its parent is gone, so it is the system's to wait for.
    assert soon(lambda: gone(int(heir.read_text())) or _is_zombie(int(heir.read_text())))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


# The life of a process


def test_close_leaves_nothing_behind(start: Start) -> None:
    counted = Path("/proc/self/fd")
    before = len(list(counted.iterdir())) if counted.exists() else 0
    for misdeed in ("send(id=number, answer=21)", "os._exit(3)", "time.sleep(60)"):
        remote = start(misdeed, 0.5)
        engine = engine_of(remote)
        pids = {pid_of(engine)}
        if misdeed.startswith("send"):
            engine.node_count([3])
        else:
            with pytest.raises(Incident):
                engine.node_count([3])
            pids.add(pid_of(engine_of(remote)))
        remote.close()
        assert all(map(gone, pids))
    assert not counted.exists() or len(list(counted.iterdir())) == before


def test_close_ends_what_does_not_go(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusa_conformance.child.GRACE", 0.1)
    remote = start("send(id=number, answer=21)\ntime.sleep(60)")
    engine = engine_of(remote)
    pid = pid_of(engine)
    assert engine.node_count([3]) == 21
    began = time.monotonic()
    remote.close()
    remote.close()
    assert time.monotonic() - began < 5
    assert gone(pid)


def test_a_process_that_nobody_closes_ends_with_its_remote(start: Start, tmp_path: Path) -> None:
    child = Child(["sleep", "60"], tmp_path)
    pid = child._process.pid
    assert not gone(pid)
    del child
    assert gone(pid)
