"""However a run ends, it ends soon, and no process of it is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import medusa_manifests

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc"
)

# The first process of it is asked what it is, by the command itself; the others are the workers'.
ENGINE = """
import os
import time


def note(name):
    with open(name, "a") as file:
        file.write(f"{os.getpid()}\\n{os.getppid()}\\n")


note("pids")


class Engine:
    def __init__(self, coordinate, capacity):
        pass

    def node_count(self, branching):
        note("asked")
        while True:
            time.sleep(600)
"""

SOON = 5.0
"""Seconds; an engine that is asked to end, and left alone, has not ended by then."""

CHECK = ("-m", "medusa_conformance.cli", "check", "engine:Engine", "--timeout", "600")
VERIFY = ("-m", "medusa_conformance.cli", "verify")
PYTEST = ("-m", "pytest", "-p", "no:medusa", "-p", "medusa_conformance.pytest_plugin")
PLUGIN = (*PYTEST, "-p", "no:cacheprovider", "--medusa-engine=engine:Engine")

Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start a Python in a folder with an engine that never answers, and in a group of its own."""
    (tmp_path / "engine.py").write_text(ENGINE, "utf-8")
    # A checkout need not be installed: pytest found its folders, and the other process must.
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    started = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
    for pid in pids(tmp_path / "pids"):
        if living(pid):
            os.kill(pid, signal.SIGKILL)


def pids(file: Path) -> set[int]:
    """What the engines have noted: they, and who has started them."""
    noted = file.read_text().splitlines() if file.exists() else []
    return set(map(int, noted)) - {os.getpid()}


def stat(pid: int) -> tuple[str, int]:
    """State and parent of a process; `X` where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X", 0
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)


def living(pid: int) -> bool:
    """Whether there is such a process, and not only the entry of one that nobody has waited for."""
    return stat(pid)[0] not in "XZ"


def until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def end(process: subprocess.Popen[str], number: int, group: bool, folder: Path) -> str:
    """Send a signal once a worker waits for its engine; what was said, and nothing is left."""
    assert until((folder / "asked").exists, 60), process.communicate(timeout=5)
    # Each of two workers begins an engine of its own, one a little before the other.
    assert until(lambda: len(pids(folder / "pids")) >= 4, 60)
    begun = time.monotonic()
    (os.killpg if group else os.kill)(process.pid, number)
    process.wait(SOON)
    run = pids(folder / "pids")
    assert until(lambda: not any(map(living, run)), SOON - (time.monotonic() - begun))
    return process.communicate()[1]


@pytest.mark.parametrize(
    ("number", "group", "code", "said"),
    [
        (signal.SIGINT, True, 130, "interrupted"),
        (signal.SIGINT, False, 130, "interrupted"),
        (signal.SIGTERM, False, 143, "terminated"),
        (signal.SIGTERM, True, 143, "terminated"),
        (signal.SIGKILL, False, -9, None),
    ],
)
def test_a_check_that_is_ended_leaves_nothing_behind(
    begin: Begin, tmp_path: Path, number: int, group: bool, code: int, said: str | None
) -> None:
    process = begin(*CHECK, "--contract", "tree", "--max-examples", "1")
    text = end(process, number, group, tmp_path)
    assert process.returncode == code
    assert said is None or text.split() == [said]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_pytest_that_is_ended_leaves_nothing_behind(
    begin: Begin, tmp_path: Path, number: int
) -> None:
    end(begin(*PLUGIN), number, True, tmp_path)


def test_the_main_job_ends_soon(begin: Begin) -> None:
    process = begin(*VERIFY)
    # Its workers, and what keeps count of what they share.
    assert until(lambda: len(children(process.pid)) >= 2, 60)
    started = children(process.pid)
    os.kill(process.pid, signal.SIGINT)
    process.wait(SOON)
    assert process.returncode == 130
    assert until(lambda: not any(map(living, started)), SOON)


def children(pid: int) -> set[int]:
    everyone = {int(path.name) for path in Path("/proc").glob("[0-9]*")}
    return {child for child in everyone if stat(child)[1] == pid}


LOSER = """
import gc, os, signal, time
from medusa_conformance.interrupts import heeded

def lose(phase, _):
    if phase == "stop":
        gc.callbacks.remove(lose)
        os.kill(os.getpid(), {number})

with heeded():
    gc.callbacks.append(lose)
    gc.collect()
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "Terminated")]
)
def test_an_interrupt_of_the_collector_is_not_lost(begin: Begin, number: int, name: str) -> None:
    process = begin("-c", LOSER.format(number=int(number)))
    text = process.communicate(timeout=20)[1]
    assert "Exception ignored" not in text
    assert text.splitlines()[-1].endswith(name)


def test_a_served_engine_ends_with_who_asks(begin: Begin, tmp_path: Path) -> None:
    process = begin("-m", "medusa_conformance.serve", "engine:Engine")
    document = medusa_manifests.load("root-only").document()
    started = {"id": 1, "command": "start", "session": 1, "coordinate": document, "capacity": 9}
    asked = {"id": 2, "command": "stage", "session": 1, "stage": "node_count"}
    asked["arguments"] = {"branching": [2]}
    assert process.stdin is not None
    process.stdin.write("".join(f"{json.dumps(message)}\n" for message in (started, asked)))
    process.stdin.flush()
    assert until((tmp_path / "asked").exists, 60)
    assert process.poll() is None
    process.stdin.close()
    process.stdin = None
    process.wait(SOON)
