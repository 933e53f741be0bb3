"""Code that is planted in a checkpoint: where it is, and who runs it."""

from __future__ import annotations

import io
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from medusa_conformance.faults import Fault, Written, executed, planted
from medusa_spec.stages import SavedCheckpoint

FILE, BACKBONE, CONFIG = "medusa.safetensors", "backbone.safetensors", "config.json"
BESIDE = ("medusa_lm_head.pt", "pytorch_model.bin", "training_args.bin")


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """A folder with heads and a backbone of one tensor each."""
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / CONFIG).write_text("{}", "utf-8")
    for name in (FILE, BACKBONE):
        save_file({"weight": torch.ones(2)}, folder / name)
    answer = SavedCheckpoint(CONFIG, {}, (FILE,), (BACKBONE,))
    return Written(folder, answer, None, 0, changed=True)


@pytest.fixture
def found(written: Written) -> list[tuple[Fault, Path]]:
    """Everything that is planted, each in a copy of the folder."""
    copies = []
    for number, fault in enumerate(planted(written)):
        assert fault.plants
        folder = written.folder.with_name(f"copy-{number}")
        shutil.copytree(written.folder, folder)
        fault.corrupt(folder)
        copies.append((fault, folder))
    return copies


@pytest.fixture
def pickles(found: list[tuple[Fault, Path]]) -> dict[str, Path]:
    """The bare pickles in the place of the heads, by their names."""
    bare = [(f.what, at) for f, at in found if f.what.endswith(f"in the place of {FILE}")]
    return {what.split()[3]: folder for what, folder in bare if what.startswith("a pickle")}


def test_all_that_is_planted_is_named(found: list[tuple[Fault, Path]]) -> None:
    names = (FILE, "medusa.pt", "medusa.bin", "medusa_lm_head.pt", "pytorch_model.bin")
    others = (BACKBONE, "backbone.pt", "backbone.bin")
    archive = "an archive with a pickle, called"
    assert [fault.what for fault, _ in found] == [
        *(f"a pickle called {name} is beside its files" for name in BESIDE),
        *(f"a pickle called {name} is in the place of {FILE}" for name in names),
        f"{archive} medusa.pt, is in the place of {FILE}",
        *(f"a pickle called {name} is in the place of {BACKBONE}" for name in others),
        f"{archive} backbone.pt, is in the place of {BACKBONE}",
    ]
    assert [fault.beside for fault, _ in found] == [True] * 3 + [False] * 10


def test_what_lies_beside_leaves_the_rest_as_it_is(found: list[tuple[Fault, Path]]) -> None:
    for (_, folder), name in zip(found, BESIDE, strict=False):
        assert {file.name for file in folder.iterdir()} == {CONFIG, FILE, BACKBONE, name}
        assert not executed(folder)
        pickle.loads((folder / name).read_bytes())
        assert executed(folder)


def test_a_file_that_is_there_is_not_replaced_by_what_lies_beside(written: Written) -> None:
    (written.folder / BESIDE[0]).write_bytes(b"")
    beside = [fault.what.split()[3] for fault in planted(written) if fault.beside]
    assert beside == [*BESIDE[1:]]


def test_it_runs_when_it_is_unpickled(pickles: dict[str, Path]) -> None:
    assert len(pickles) == 5
    for name, folder in pickles.items():
        assert not executed(folder)
        pickle.loads((folder / name).read_bytes())
        assert executed(folder)
        # The folder itself is as it was: it may be listed, and loaded again.
        assert {file.name for file in folder.iterdir()} == {CONFIG, BACKBONE, name}


def test_a_loader_of_any_pickle_runs_it(pickles: dict[str, Path]) -> None:
    for name, folder in pickles.items():
        # By its content: of a path, newer releases look at the suffix first.
        with pytest.raises(Exception, match=r"."):
            torch.load(io.BytesIO((folder / name).read_bytes()), weights_only=False)
        assert executed(folder)


def test_a_loader_of_tensors_does_not(pickles: dict[str, Path]) -> None:
    for name, folder in pickles.items():
        with pytest.raises(SafetensorError):
            load_file(folder / name)
        with pytest.raises(pickle.UnpicklingError):
            torch.load(io.BytesIO((folder / name).read_bytes()), weights_only=True)
        assert not executed(folder)


def test_an_archive_runs_where_any_pickle_is_loaded(found: list[tuple[Fault, Path]]) -> None:
    archives = [(fault.what, folder) for fault, folder in found if "archive" in fault.what]
    assert len(archives) == 2
    for what, folder in archives:
        name = what.split()[6].rstrip(",")
        with pytest.raises(pickle.UnpicklingError):
            torch.load(folder / name, weights_only=True)
        assert not executed(folder)
        torch.load(folder / name, weights_only=False)
        assert executed(folder)
