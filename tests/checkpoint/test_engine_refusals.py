"""A checkpoint that is broken in one place: one line that names it, and an engine as before."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import medusa_manifests
from medusa_reference_engine import ReferenceEngine
from medusa_reference_engine.checkpoint import ADAPTER, BACKBONE, CONFIG, HEADS
from medusa_spec import Refused
from medusa_spec.coordinate import Release
from medusa_spec.errors import InputError
from medusa_spec.stages import HeadState

KINDS = ("checkpoint-independent", "checkpoint-shared", "checkpoint-joint", "checkpoint-adapter")
TOKENS = (3, 1, 4)


def engine_of(name: str, **changes: Any) -> ReferenceEngine:
    coordinate = medusa_manifests.load(name)
    heads = changes.pop("heads", coordinate.heads)
    dtype = changes.pop("dtype", "float64")
    return ReferenceEngine.seeded(replace(coordinate.model, **changes), heads, 16, dtype=dtype)


def release_of(name: str) -> Release:
    release = medusa_manifests.load(name).release
    assert release is not None
    return release


def saver_of(name: str) -> ReferenceEngine:
    engine, training = engine_of(name), medusa_manifests.load(name).training
    for step in range(training.steps if training else 0):
        engine.train_step(training, step)
    return engine


def saved(folder: Path, name: str) -> Path:
    saver_of(name).save_checkpoint(folder, release_of(name), None)
    return folder


def refusal(engine: ReferenceEngine, folder: Path, release: Release) -> str:
    """What loading says: one line; and the engine is the one that it was."""
    engine.prefill(TOKENS)
    before, cache = engine.forward(TOKENS), engine.cache()
    with pytest.raises(Refused) as caught:
        engine.load_checkpoint(folder, release)
    after = engine.forward(TOKENS)
    assert before.logits.tobytes() == after.logits.tobytes()
    assert before.head_logits.tobytes() == after.head_logits.tobytes()
    assert cache.backing.tobytes() == engine.cache().backing.tobytes()
    assert cache.length == engine.cache().length == len(TOKENS)
    said = str(caught.value)
    assert said.isprintable()
    assert str(folder) not in said
    return said


def edit(file: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


WORDS = {
    "base": "another",
    "base_revision": "0" * 40,
    "tokenizer": "another",
    "variant": "medusa-2",
    "heads": 5,
    "blocks": 1,
    "projection": "shared",
    "offset": 1,
    "dtype": "float32",
}


@pytest.mark.parametrize("word", WORDS)
def test_every_word_of_the_identity_is_compared(tmp_path: Path, word: str) -> None:
    name = "checkpoint-independent"
    file = saved(tmp_path, name) / CONFIG
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {word: WORDS[word]}))
    asked = f"{config[word]!r} was asked for"
    said = refusal(engine_of(name), tmp_path, release_of(name))
    assert said == f"{CONFIG}: {word}: is {WORDS[word]!r}; {asked}"
    del config[word]
    file.write_text(json.dumps(config))
    said = refusal(engine_of(name), tmp_path, release_of(name))
    assert said == f"{CONFIG}: {word}: is missing"


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"heads": 3, "heads": 3}', "heads: is given twice"),
        (b"\xff", "is not UTF-8"),
        (b'{"heads": NaN}', "NaN is not a JSON value"),
        (b"[" * 100_000, "not JSON"),
    ],
    ids=["empty", "list", "twice", "bytes", "nan", "deep"],
)
def test_a_config_is_a_json_object(tmp_path: Path, content: bytes, rule: str) -> None:
    name = "checkpoint-shared"
    (saved(tmp_path, name) / CONFIG).write_bytes(content)
    said = refusal(engine_of(name), tmp_path, release_of(name))
    assert said.startswith(f"{CONFIG}: ")
    assert rule in said or "nested too deeply" in said


@pytest.mark.parametrize(
    ("word", "value"), [("heads", 2.0), ("heads", True), ("offset", "2"), ("note", "hello")]
)
def test_a_word_is_of_its_type_and_there_is_no_other(tmp_path: Path, word: str, value: Any) -> None:
    name = "checkpoint-shared"
    file = saved(tmp_path, name) / CONFIG
    file.write_text(json.dumps(json.loads(file.read_text()) | {word: value}))
    said = refusal(engine_of(name), tmp_path, release_of(name))
    assert said.startswith(f"{CONFIG}: ")
    assert word in said


@pytest.mark.parametrize("name", KINDS)
def test_files_are_there_and_whole(tmp_path: Path, name: str) -> None:
    files = sorted(saved(tmp_path, name).iterdir())
    assert len(files) == 2 + (name in KINDS[2:])
    for file in files:
        content = file.read_bytes()
        for broken in (b"", content[:4], content[: len(content) // 2], content[:-2], b"text\n"):
            file.write_bytes(broken)
            said = refusal(engine_of(name), tmp_path, release_of(name))
            assert said.startswith(file.name)
        file.unlink()
        said = refusal(engine_of(name), tmp_path, release_of(name))
        assert file.name.split("_")[0] in said or BACKBONE in said
        file.mkdir()
        said = refusal(engine_of(name), tmp_path, release_of(name))
        assert said.startswith(file.name)
        file.rmdir()
        file.write_bytes(content)
    engine_of(name).load_checkpoint(tmp_path, release_of(name))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    name = "checkpoint-shared"
    said = refusal(engine_of(name), tmp_path / "nowhere", release_of(name))
    assert said == f"{CONFIG}: no such file"


@pytest.mark.parametrize("name", KINDS)
def test_every_tensor_is_there_under_its_name_in_its_form(tmp_path: Path, name: str) -> None:
    engine, release = engine_of(name), release_of(name)
    saved(tmp_path, name)
    for file in sorted(tmp_path.glob("*.safetensors")):
        whole = file.read_bytes()
        for tensor in load_file(file):
            cut = load_file(file)[tensor][..., :-1].contiguous()
            changes: list[tuple[Callable[[dict[str, Tensor]], Any], str]] = [
                (lambda t, n=tensor: t.pop(n), f"{tensor}: is missing"),
                (lambda t, n=tensor: t.update({n: t[n].float()}), f"{tensor}: is stored as F32"),
                (lambda t, n=tensor, c=cut: t.update({n: c}), f"{tensor}: has shape"),
                (
                    lambda t, n=tensor: t.update({f"x{n}": t[n].clone()}),
                    f"'x{tensor}': is no tensor",
                ),
            ]
            for change, rule in changes:
                edit(file, change)
                said = refusal(engine, tmp_path, release)
                assert said.startswith(f"{file.name}: {rule}")
                file.write_bytes(whole)
    engine.load_checkpoint(tmp_path, release)


def test_a_name_that_would_break_the_line_is_spelled_out(tmp_path: Path) -> None:
    name = "checkpoint-shared"
    saved(tmp_path, name)
    edit(tmp_path / HEADS, lambda t: t.update({"a\nb\x1b[31m": torch.zeros(1)}))
    said = refusal(engine_of(name), tmp_path, release_of(name))
    assert said == f"{HEADS}: 'a\\nb\\x1b[31m': is no tensor of this checkpoint"


def test_engines_of_other_sizes_refuse_it(tmp_path: Path) -> None:
    name = "checkpoint-independent"
    release = release_of(name)
    saved(tmp_path, name)
    for changes, word in (
        ({"heads": 2}, "heads"),
        ({"head_blocks": 1}, "blocks"),
        ({"projection": "shared"}, "projection"),
        ({"dtype": "bfloat16"}, "dtype"),
    ):
        said = refusal(engine_of(name, **changes), tmp_path, release)
        assert said.startswith(f"{CONFIG}: {word}: is ")
    said = refusal(engine_of(name, vocabulary=17), tmp_path, release)
    assert "has shape [16, 8]; [17, 8] is needed" in said


def test_a_backbone_is_there_where_it_belongs_and_nowhere_else(tmp_path: Path) -> None:
    shared, joint = tmp_path / "shared", tmp_path / "joint"
    shared.mkdir()
    joint.mkdir()
    saved(shared, "checkpoint-shared")
    saved(joint, "checkpoint-joint")
    (shared / BACKBONE).write_bytes((joint / BACKBONE).read_bytes())
    engine, release = engine_of("checkpoint-shared"), release_of("checkpoint-shared")
    assert refusal(engine, shared, release).startswith(f"{BACKBONE}: is here")
    (joint / ADAPTER).write_bytes((joint / BACKBONE).read_bytes())
    engine, release = engine_of("checkpoint-joint"), release_of("checkpoint-joint")
    assert refusal(engine, joint, release).endswith("for medusa-2; 2 are here")
    (joint / BACKBONE).unlink()
    assert refusal(engine, joint, release).startswith(f"{ADAPTER}: 'lm_head.weight': is no tensor")
    (joint / ADAPTER).unlink()
    assert refusal(engine, joint, release).endswith("for medusa-2; 0 are here")


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("planted", [HEADS, "medusa_heads.pt", "medusa_heads.bin", CONFIG])
def test_a_pickle_is_not_run(tmp_path: Path, planted: str) -> None:
    name, marker = "checkpoint-shared", tmp_path / "executed"
    folder = tmp_path / "saved"
    folder.mkdir()
    (saved(folder, name) / HEADS).unlink()
    (folder / planted).write_bytes(pickle.dumps(Bomb(marker)))
    said = refusal(engine_of(name), folder, release_of(name))
    assert said.startswith(CONFIG if planted == CONFIG else HEADS)
    assert not marker.exists()


def test_medusa_2_is_not_saved_without_its_backbone(tmp_path: Path) -> None:
    name = "checkpoint-joint"
    with pytest.raises(Refused, match="changed backbone or adapter is not here: nothing trained"):
        engine_of(name).save_checkpoint(tmp_path, release_of(name), None)
    given = engine_of(name).forward(TOKENS).state
    with pytest.raises(Refused, match="nothing trained it"):
        engine_of(name).save_checkpoint(tmp_path, release_of(name), given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variant", "rule"),
    [
        ("medusa-1", "is medusa-1, whose base stays as it is, and medusa-2 has changed it"),
        ("self-distilled", "is self-distilled, and the backbone is that of medusa-2"),
    ],
)
def test_a_release_is_of_the_training_that_was(tmp_path: Path, variant: Any, rule: str) -> None:
    name = "checkpoint-joint"
    release = replace(release_of(name), variant=variant)
    with pytest.raises(Refused, match=rule):
        saver_of(name).save_checkpoint(tmp_path, release, None)
    assert list(tmp_path.iterdir()) == []


def test_it_is_saved_into_an_empty_folder(tmp_path: Path) -> None:
    engine, release = engine_of("checkpoint-shared"), release_of("checkpoint-shared")
    (tmp_path / "note").write_text("mine")
    for folder in (tmp_path, tmp_path / "nowhere", tmp_path / "note"):
        with pytest.raises(Refused, match="is no empty folder"):
            engine.save_checkpoint(folder, release, None)
    assert [file.name for file in tmp_path.iterdir()] == ["note"]


def test_heads_of_another_shape_are_not_saved(tmp_path: Path) -> None:
    name = "checkpoint-shared"
    state = engine_of(name, heads=3).forward(TOKENS).state
    assert isinstance(state, HeadState)
    with pytest.raises(Refused, match=r"heads: shapes of weight, bias and projection are"):
        engine_of(name).save_checkpoint(tmp_path, release_of(name), state)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_disk_that_is_full_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    from medusa_reference_engine import checkpoint

    name, calls = "checkpoint-joint", [after]
    whole = checkpoint.written_whole

    def failing(target: Path) -> Any:
        if calls[0] == 0:
            raise InputError(str(target), "", "cannot be written: No space left on device")
        calls[0] -= 1
        return whole(target)

    monkeypatch.setattr(checkpoint, "written_whole", failing)
    with pytest.raises(Refused, match="cannot be written: No space left on device"):
        saver_of(name).save_checkpoint(tmp_path, release_of(name), None)
    assert list(tmp_path.iterdir()) == []
