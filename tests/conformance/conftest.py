"""What the tests of the runner and the command line share."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch

from medusa_conformance import check, cli, runner

Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    # Tiny matrices gain nothing by a second thread.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def report_documents() -> ModuleType:
    """The documents of `report_documents.py`, which reports are made of."""
    return _module("report_documents")


@pytest.fixture(scope="session")
def engines() -> ModuleType:
    """The engines of `dialect_engines.py`, which speak any dialect."""
    return _module("dialect_engines")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium, as `browser.py` drives it; it is left out where there is none."""
    module = _module("browser")
    if module.CHROMIUM is None:
        pytest.skip("no Chromium")
    with module.Browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def _module(name: str) -> ModuleType:
    # Test folders are no packages, so a module is loaded by its path.
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up by its name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Run this interpreter, with what is importable here, in a folder of its own."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    # A checkout need not be installed: pytest found its folders, and the other process must.
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(
            command, cwd=elsewhere, env=env, capture_output=True, text=True, check=False
        )

    return run


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Answer]:
    """Run the command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Answer:
        monkeypatch.setattr(sys, "argv", ["medusa-oracles", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code or 0
        assert isinstance(code, int)
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def refuse(call: Callable[..., Answer], tmp_path: Path) -> Callable[..., str]:
    """Prove that a call is refused: exit 3, one line on standard error, nothing else anywhere."""

    def run(*arguments: str | Path) -> str:
        before = sorted(tmp_path.rglob("*"))
        answer = call(*arguments)
        assert (answer.code, answer.out) == (3, "")
        assert answer.err.endswith("\n")
        (line,) = answer.err.splitlines()
        assert line.startswith("error: ")
        assert sorted(tmp_path.rglob("*")) == before
        return line.removeprefix("error: ")

    return run


class Here:
    """A pool of processes that is this process."""

    def submit(self, task: Callable[..., Any], *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(task(*given))
        except Exception as error:
            done.set_exception(error)
        return done


@contextmanager
def here(workers: int, begin: Callable[[Any], None], given: Any) -> Iterator[Here]:
    """Stands in for `pool`."""
    begin(given)
    yield Here()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a run see these frozen coordinates alone, in this process."""

    def only(*names: str) -> None:
        few = [c for c in runner.frozen_coordinates() if c.name in names]
        assert len(few) == len(names)
        monkeypatch.setattr(runner, "frozen_coordinates", lambda: few)
        monkeypatch.setattr(runner, "pool", here)
        # A kill is enough: no other sight of a mutant is looked for.
        monkeypatch.setattr(runner, "PATIENCE", 0)

    return only


MINIATURES = ("toy_engine.py", "miniatures.py")


@pytest.fixture
def check_here(
    call: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    """Run `check` on two frozen coordinates, beside the miniatures; its worker is this process."""

    few = [c for c in runner.frozen_coordinates() if c.name in ("six-node", "own-acceptance")]
    monkeypatch.setattr(check, "frozen_coordinates", lambda: few)
    monkeypatch.setattr(check, "random_coordinates", lambda *_: [])
    monkeypatch.setattr(check, "pool", here)
    for name in MINIATURES:
        shutil.copy(Path(__file__).with_name(name), tmp_path)
    # What a run leaves here goes when this is undone, and its process with it.
    monkeypatch.setattr(check, "_worker", None)
    return lambda *arguments: call("check", *arguments)


@pytest.fixture
def six_node() -> dict[str, Any]:
    """What the six-node tree of 0x03B derives to, by hand: root, A, B, A1, A2, B1."""
    return {
        "name": "six-node",
        "topk": 2,
        "heads": 2,
        "nodes": 6,
        "sentinel": -1,
        "retrieval_order": "canonical",
        "paths": [[0], [1], [0, 0], [0, 1], [1, 0]],
        "parents": [-1, 0, 0, 1, 1, 2],
        "tree_indices": [0, 1, 2, 3, 4, 3],
        "attention_mask": [
            [1, 0, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 0],
            [1, 0, 1, 0, 0, 0],
            [1, 1, 0, 1, 0, 0],
            [1, 1, 0, 0, 1, 0],
            [1, 0, 1, 0, 0, 1],
        ],
        "position_ids": [0, 1, 1, 2, 2, 2],
        "retrieve_indices": [[0, 1, 3], [0, 1, 4], [0, 2, 5]],
    }
