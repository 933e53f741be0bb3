"""Each fault breaks the one thing that it names, of a folder that safetensors wrote and reads."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from medusa_conformance.faults import Fault, Written, faults, planted
from medusa_spec.registry import of_contract
from medusa_spec.stages import IDENTITY, HeadState, SavedCheckpoint

A = {invariant.clause: invariant.code for invariant in of_contract("checkpoint")}
BROKEN = set(A.values()) - {A["A7"], A["A10"]}
"""Rules that a broken folder breaks; a round trip and a session are of engines alone."""
HEADS, BLOCKS, WIDTH, VOCABULARY = 3, 2, 4, 6
FILE, BACKBONE, CONFIG = "medusa.safetensors", "backbone.safetensors", "config.json"
WORDS: dict[str, Any] = {
    "base": "example/base",
    "base_revision": "5a0f9c31",
    "tokenizer": "example/base@5a0f9c31",
    "variant": "medusa-2",
    "heads": HEADS,
    "blocks": BLOCKS,
    "projection": "independent",
    "offset": 2,
    "dtype": "float32",
}
FIELDS = {word: word if word == "heads" else f"medusa.{word}" for word in IDENTITY}
Build = Callable[..., Written]


def drawn(*size: int) -> Any:
    """Values of which a bfloat16 loses no bit, all of them different from the others'."""
    return np.random.default_rng(len(size)).integers(-127, 128, size) / 64


def state(independent: bool) -> HeadState:
    own = drawn(HEADS, VOCABULARY, WIDTH) if independent else None
    weight, bias = drawn(HEADS, BLOCKS, WIDTH, WIDTH), drawn(HEADS, BLOCKS, WIDTH)
    return HeadState(weight, bias, drawn(VOCABULARY, WIDTH), own)


def tensors(held: HeadState, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    named = {
        f"{head}.{block}.linear.{name}": getattr(held, name)[head, block]
        for head in range(HEADS)
        for block in range(BLOCKS)
        for name in ("weight", "bias")
    }
    if held.projection is not None:
        named |= {f"{head}.{BLOCKS}.weight": held.projection[head] for head in range(HEADS)}
    return {name: torch.tensor(value).to(dtype) for name, value in named.items()}


BASE = {"embed.weight": torch.arange(24.0).reshape(6, 4)}


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A builder of lawful folders."""

    def written(
        dtype: torch.dtype = torch.float32,
        independent: bool = True,
        backbone: str = BACKBONE,
        seed: int = 0,
        named: str = "float32",
        changed: bool = True,
    ) -> Written:
        folder, held = tmp_path / "saved", state(independent)
        folder.mkdir()
        words = WORDS | {"dtype": named, "projection": "independent" if independent else "shared"}
        config = {"heads": HEADS, "medusa": words, "other": [1]}
        (folder / CONFIG).write_text(json.dumps(config), "utf-8")
        files = {FILE: tensors(held, dtype)}
        if backbone:
            files[backbone] = files.get(backbone, {}) | BASE
        for name, content in files.items():
            save_file(content, folder / name)
        answer = SavedCheckpoint(CONFIG, FIELDS, (FILE,), (backbone,) if backbone else ())
        return Written(folder, answer, held, seed, changed)

    return written


def copies(written: Written) -> Iterator[tuple[Fault, Path]]:
    """Every fault, and a copy of the folder that it was done to."""
    before = contents(written.folder)
    for fault in (*faults(written), *planted(written)):
        folder = Path(mkdtemp(dir=written.folder.parent)) / "copy"
        shutil.copytree(written.folder, folder)
        fault.corrupt(folder)
        assert contents(folder) != before
        yield fault, folder
    assert contents(written.folder) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def touched(written: Written, folder: Path) -> set[str]:
    """The files that are not as they were."""
    before, after = contents(written.folder), contents(folder)
    return {name for name in before | after if before.get(name) != after.get(name)}


def breaking(written: Written, *clauses: str) -> dict[str, Path]:
    """The folders in which these rules are broken, by what is broken there."""
    codes = {A[clause] for clause in clauses}
    return {f.what: folder for f, folder in copies(written) if f.breaks in codes}


def of_heads(found: dict[str, Path]) -> dict[str, Path]:
    """What is broken of the heads' file, and not of a backbone's."""
    return {w: at for w, at in found.items() if "embed" not in w and BACKBONE not in w}


def loaded(folder: Path, name: str = FILE) -> Mapping[str, torch.Tensor]:
    """What the library reads, every tensor of it."""
    read: dict[str, torch.Tensor] = load_file(folder / name)
    return read


def same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(
        left[n].dtype == right[n].dtype and torch.equal(left[n], right[n]) for n in left
    )


def test_every_rule_of_a_folder_is_broken(build: Build) -> None:
    written = build()
    found = [fault for fault, _ in copies(written)]
    assert {fault.breaks for fault in found} == BROKEN
    assert len({fault.what for fault in found}) == len(found)
    assert {fault.breaks for fault in found if fault.plants} == {A["A9"]}
    assert Counter(fault.breaks for fault in found) == {
        # Seven words, left out, null and twice otherwise; names and the dtype three times.
        A["A1"]: 32,
        # The word, left out, null, one more and one less; the last head, without and with it.
        A["A2"]: 6,
        # The config and the file are gone, and the file has another name.
        A["A3"]: 3,
        # Seven of a bias of the heads, and with its axes one more of a matrix of the backbone.
        A["A4"]: 15,
        # The word, left out, null and otherwise; the projections, without and with it.
        A["A5"]: 5,
        A["A6"]: 1,
        # Config, heads and backbone end early, or hold text.
        A["A8"]: 6,
        # A pickle in the place of the heads, under five names, and of the backbone, under three;
        # an archive of either, and three pickles beside all.
        A["A9"]: 13,
    }


def test_a_word_is_left_out_or_another_and_nothing_else_is(build: Build) -> None:
    written = build(torch.bfloat16, named="torch.bfloat16")
    others = {
        "base": ["example/base-other", "other-example/base", "exampl"],
        "base_revision": ["5a0f9c31-other", "other-5a0f9c31", "5a0f"],
        "tokenizer": [
            "example/base@5a0f9c31-other",
            "other-example/base@5a0f9c31",
            "example/ba",
        ],
        "variant": ["medusa-1", "self-distilled"],
        "heads": [2, 4],
        "blocks": [1, 3],
        "projection": ["shared"],
        "offset": [1, 3],
        "dtype": ["float64", "float32", "float16"],
    }
    seen: dict[str, list[Any]] = {word: [] for word in IDENTITY}
    whole = json.loads((written.folder / CONFIG).read_text("utf-8"))
    for fault, folder in copies(written):
        if not fault.what.startswith("its config names"):
            continue
        assert touched(written, folder) == {CONFIG}
        config = json.loads((folder / CONFIG).read_text("utf-8"))
        named = re.search(r" names no (\w+)$| as (\w+)(?:, not |$)", fault.what)
        assert named is not None
        word = named[1] or named[2]
        code = {"heads": A["A2"], "projection": A["A5"]}.get(word, A["A1"])
        assert fault.breaks == code
        place, was = (config, whole) if word == "heads" else (config["medusa"], whole["medusa"])
        seen[word].append(place.pop(word, "left out"))
        place |= {word: was[word]}
        assert config == whole
    assert seen == {word: ["left out", None, *values] for word, values in others.items()}


def test_files_are_missing_or_misnamed(build: Build) -> None:
    written = build()
    gone = breaking(written, "A3", "A6")
    assert gone.keys() == {
        "config.json is not there",
        "medusa.safetensors is not there",
        "medusa.safetensors is called old-medusa.safetensors",
        "backbone.safetensors is not there",
    }
    for what, folder in gone.items():
        name = what.split()[0]
        left = contents(written.folder)
        moved = left.pop(name)
        if "is called" in what:
            left[what.split()[-1]] = moved
        assert contents(folder) == left


def test_files_end_early_or_hold_text(build: Build) -> None:
    written = build()
    found = breaking(written, "A8")
    assert found.keys() == {
        f"{name} {what}"
        for name in (CONFIG, FILE, BACKBONE)
        for what in ("ends in its middle", "holds other text")
    }
    for what, folder in found.items():
        name = what.split()[0]
        assert touched(written, folder) == {name}
        whole, left = ((of / name).read_bytes() for of in (written.folder, folder))
        if "middle" in what:
            assert whole.startswith(left)
            assert len(left) == len(whole) // 2
        if name == CONFIG:
            with pytest.raises(json.JSONDecodeError):
                json.loads(left)
        else:
            with pytest.raises(SafetensorError):
                load_file(folder / name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("seed", [0, 1, 14])
def test_one_tensor_is_not_as_it_was(build: Build, dtype: torch.dtype, seed: int) -> None:
    written = build(dtype, seed=seed)
    whole = loaded(written.folder)
    name = sorted(whole)[seed]
    one, others = whole[name], {n: t for n, t in whole.items() if n != name}
    wider = torch.float64 if dtype == torch.float32 else torch.float32
    expected = {
        f"{name} is not in {FILE}": others,
        f"{FILE} holds no_head_of_these.weight": whole | {"no_head_of_these.weight": one},
        f"{FILE} holds {name}_extra": whole | {f"{name}_extra": one},
        f"{name} is called old_{name}": others | {f"old_{name}": one},
        f"{name} is one column short": others | {name: one[..., :-1]},
        f"{name} has another dtype than the others": others | {name: one.to(wider)},
        f"every tensor of {FILE} has another dtype": {n: t.to(wider) for n, t in whole.items()},
    }
    if one.ndim > 1:
        expected[f"{name} has one axis"] = others | {name: one.flatten()}
    found = of_heads(breaking(written, "A4"))
    assert found.keys() == expected.keys()
    for what, folder in found.items():
        assert touched(written, folder) == {FILE}
        assert same(loaded(folder), expected[what]), what


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("independent", [True, False])
def test_a_head_is_left_out_whole(build: Build, dtype: torch.dtype, independent: bool) -> None:
    written = build(dtype, independent)
    whole = loaded(written.folder)
    fewer = {name: t for name, t in whole.items() if not name.startswith("2.")}
    assert len(whole) - len(fewer) == (5 if independent else 4)
    found = breaking(written, "A2")
    said = f"no tensor of head 2 is in {FILE}"
    assert same(loaded(found[said]), fewer)
    assert touched(written, found[said]) == {FILE}
    also = found[f"{said}, and its config names 2 heads"]
    assert same(loaded(also), fewer)
    assert touched(written, also) == {FILE, CONFIG}
    assert json.loads((also / CONFIG).read_text("utf-8"))["heads"] == 2


def test_projections_are_left_out_all_together(build: Build) -> None:
    written = build(torch.bfloat16)
    whole = loaded(written.folder)
    bare = {name: t for name, t in whole.items() if "linear" in name}
    found = breaking(written, "A5")
    said = f"no projection of a head is in {FILE}"
    also = found[f"{said}, and its config names the shared one"]
    for folder in (found[said], also):
        assert same(loaded(folder), bare)
    assert touched(written, found[said]) == {FILE}
    assert json.loads((also / CONFIG).read_text("utf-8"))["medusa"]["projection"] == "shared"


def test_heads_that_share_a_projection_have_none_to_leave_out(build: Build) -> None:
    found = breaking(build(independent=False), "A5")
    assert found.keys() == {
        "its config names no projection",
        "its config names null as projection",
        'its config names "independent" as projection, not "shared"',
    }


def test_a_backbone_beside_the_heads_is_left_out_of_their_file(build: Build) -> None:
    written = build(backbone=FILE)
    whole = loaded(written.folder)
    assert "embed.weight" in whole
    found = breaking(written, "A6")
    (folder,) = found.values()
    assert list(found) == [f"nothing but heads is in {FILE}"]
    assert same(loaded(folder), {n: t for n, t in whole.items() if n != "embed.weight"})
    # What is broken of one tensor is broken of the heads'.
    assert all("embed" not in what for what in breaking(written, "A4"))


def test_of_an_unchanged_backbone_nothing_is_broken(build: Build) -> None:
    found = [fault for fault, _ in copies(build(changed=False))]
    assert {f.breaks for f in found} == BROKEN - {A["A6"]}
    assert not any("backbone" in fault.what or "embed" in fault.what for fault in found)


def test_heads_that_nobody_knows_are_broken_as_tensors(build: Build) -> None:
    whole = build()
    found = {f.breaks for f, _ in copies(replace(whole, held=None))}
    assert found == BROKEN
    # Neither by their values nor by their names is it told whose they are.
    assert not any("head 2" in what for what in breaking(replace(whole, held=None), "A2"))
    assert len(breaking(replace(whole, held=None), "A4")) == 15


def test_a_config_that_names_nothing_has_nothing_to_break(build: Build) -> None:
    written = build()
    for text in ("{}", "[]", "no json", '{"medusa": 3}'):
        (written.folder / CONFIG).write_text(text, "utf-8")
        found = [fault for fault, _ in copies(written)]
        assert not any("config names" in fault.what for fault in found)
        assert {f.breaks for f in found} == BROKEN - {A["A1"]}


def test_tensors_of_no_numbers_are_broken_as_far_as_they_go(build: Build) -> None:
    written = build()
    odd = {"count": torch.tensor([3]), "empty": torch.zeros(0, 4), "one": torch.tensor(1.0)}
    for name, tensor in odd.items():
        save_file({name: tensor}, written.folder / FILE)
        found = of_heads(breaking(written, "A4"))
        # Without numbers there is no other dtype, and without axes no other shape.
        assert len(found) == {"count": 4, "empty": 7, "one": 6}[name]
        assert not any("column short" in what for what in found)
        for folder in found.values():
            loaded(folder)


def test_of_another_format_whole_files_are_exchanged(build: Build) -> None:
    written = build()
    (written.folder / FILE).unlink()
    torch.save(tensors(state(True), torch.float32), written.folder / "medusa_lm_head.pt")
    answer = replace(written.answer, heads=("medusa_lm_head.pt",))
    other = replace(written, answer=answer)
    found = [fault for fault, _ in copies(other)]
    assert {f.breaks for f in found} == BROKEN
    assert not of_heads({f.what: at for f, at in copies(other) if f.breaks == A["A4"]})
    assert [f.what for f in found if f.plants and f.what.endswith("medusa_lm_head.pt")] == [
        "a pickle called medusa_lm_head.pt is in the place of medusa_lm_head.pt",
        "a pickle called medusa_lm_head.bin is in the place of medusa_lm_head.pt",
        "a pickle called pytorch_model.bin is in the place of medusa_lm_head.pt",
        "an archive with a pickle, called medusa_lm_head.pt, is in the place of medusa_lm_head.pt",
    ]
