"""What one engine saves, another loads: to the bit, in any dtype, with or without a training."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import medusa_manifests
from medusa_reference_engine import ReferenceEngine
from medusa_reference_engine import checkpoint as stage
from medusa_reference_engine.weights import adapter_shapes, parameter_shapes
from medusa_spec import Refused
from medusa_spec.coordinate import ModelShape, Release, Training
from medusa_spec.stages import IDENTITY, HeadState

SHAPE = ModelShape(1, 8, 2, 1, 16, 16, 10_000.0, 1e-5, 2, "independent", 3)
HEADS = 3
RELEASE = Release("base", "b" * 40, "tokenizer@1", "medusa-1")
TOKENS = (3, 1, 4, 1, 5)
DTYPES = pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
SHAPES = pytest.mark.parametrize(
    "shape",
    [
        SHAPE,
        replace(SHAPE, head_blocks=1, projection="shared"),
        replace(SHAPE, head_blocks=0),
        replace(SHAPE, head_blocks=0, projection="shared"),
    ],
    ids=["independent", "shared", "no-blocks", "no-tensors"],
)


def planned(name: str) -> Training:
    training = medusa_manifests.load(name).training
    assert training is not None
    return replace(training, head_weights=(0.8,) * HEADS)


JOINT, DISTILLED = planned("checkpoint-joint"), planned("checkpoint-adapter")
TRAINED = pytest.mark.parametrize(
    ("training", "file"),
    [
        (JOINT, stage.BACKBONE),
        (replace(JOINT, adapter_rank=1), stage.ADAPTER),
        (DISTILLED, stage.ADAPTER),
    ],
    ids=["weights", "adapter", "distilled"],
)


def seeded(shape: ModelShape = SHAPE, dtype: str = "float64") -> ReferenceEngine:
    return ReferenceEngine.seeded(shape, HEADS, 16, dtype=dtype)


def trained(training: Training, shape: ModelShape = SHAPE, dtype: str = "float64") -> Any:
    engine = seeded(shape, dtype)
    train(engine, training)
    return engine


def train(engine: ReferenceEngine, training: Training) -> None:
    for step in range(training.steps):
        engine.train_step(training, step)


def of(training: Training) -> Release:
    return replace(RELEASE, variant=training.variant)


def drawn(shape: ModelShape) -> HeadState:
    generator = np.random.default_rng(1)
    d, vocabulary = shape.hidden, shape.vocabulary
    own = generator.normal(size=(HEADS, vocabulary, d))
    return HeadState(
        generator.normal(size=(HEADS, shape.head_blocks, d, d)),
        generator.normal(size=(HEADS, shape.head_blocks, d)),
        generator.normal(size=(vocabulary, d)),
        own if shape.projection == "independent" else None,
    )


def bits(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def logits(engine: ReferenceEngine) -> list[bytes]:
    seen = engine.forward(TOKENS)
    return [seen.logits.tobytes(), seen.head_logits.tobytes()]


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@DTYPES
@SHAPES
def test_given_heads_come_back_in_the_engines_own_dtype(
    tmp_path: Path, shape: ModelShape, dtype: str
) -> None:
    given, saver, loader = drawn(shape), seeded(shape, dtype), seeded(shape, dtype)
    untouched = logits(saver)
    answer = saver.save_checkpoint(made(tmp_path / "one"), RELEASE, given)
    assert logits(saver) == untouched
    assert (answer.config, answer.heads, answer.backbone) == (stage.CONFIG, (stage.HEADS,), ())
    assert answer.fields == {word: word for word in IDENTITY}
    loaded = loader.load_checkpoint(tmp_path / "one", RELEASE)
    assert loaded.identity == {
        "base": "base",
        "base_revision": "b" * 40,
        "tokenizer": "tokenizer@1",
        "variant": "medusa-1",
        "heads": HEADS,
        "blocks": shape.head_blocks,
        "projection": shape.projection,
        "offset": 2,
        "dtype": dtype,
    }
    for name in ("weight", "bias", "projection"):
        array = getattr(given, name)
        held = getattr(loaded.state, name)
        if array is None:
            assert held is None
        else:
            cast = torch.as_tensor(array).to(getattr(torch, dtype)).double().numpy()
            assert held.tobytes() == cast.tobytes()
    assert loader.forward(TOKENS).logits.tobytes() == untouched[0]
    loader.save_checkpoint(made(tmp_path / "two"), RELEASE, None)
    assert bits(tmp_path / "two") == bits(tmp_path / "one")


def test_tensors_stand_under_the_names_of_the_current_wrapper(tmp_path: Path) -> None:
    seeded().save_checkpoint(tmp_path, RELEASE, None)
    stored = load_file(tmp_path / stage.HEADS)
    expected = {
        name: size
        for name, size in parameter_shapes(SHAPE, HEADS).items()
        if name.startswith("medusa_head.")
    }
    assert {name: tuple(tensor.shape) for name, tensor in stored.items()} == expected
    assert len(expected) == HEADS * (2 * 2 + 1)
    config = json.loads((tmp_path / stage.CONFIG).read_text())
    assert list(config) == list(IDENTITY)


@DTYPES
@TRAINED
def test_a_changed_backbone_comes_with_its_heads(
    tmp_path: Path, training: Training, file: str, dtype: str
) -> None:
    saver, loader = trained(training, dtype=dtype), seeded(dtype=dtype)
    base = loader.forward(TOKENS)
    assert logits(saver)[0] != base.logits.tobytes()
    answer = saver.save_checkpoint(made(tmp_path / "one"), of(training), None)
    assert answer.backbone == (file,)
    loader.load_checkpoint(tmp_path / "one", of(training))
    assert logits(loader) == logits(saver)
    loader.save_checkpoint(made(tmp_path / "two"), of(training), None)
    assert bits(tmp_path / "two") == bits(tmp_path / "one")
    # Engines of one seed share a decoder, which is nobody's to change.
    assert logits(seeded(dtype=dtype))[0] == base.logits.tobytes()


def test_an_adapter_is_stored_as_its_factors(tmp_path: Path) -> None:
    trained(DISTILLED).save_checkpoint(tmp_path, of(DISTILLED), None)
    stored = load_file(tmp_path / stage.ADAPTER)
    sizes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
    assert sizes == adapter_shapes(SHAPE, 2)
    assert any(tensor.any() for name, tensor in stored.items() if name.endswith("lora_B"))


def test_what_was_loaded_is_decoded_with(tmp_path: Path) -> None:
    saver, loader = trained(JOINT), seeded()
    saver.save_checkpoint(tmp_path, of(JOINT), None)
    policy = medusa_manifests.load("six-node").policy
    given = ((1, 2, 3), 6, [(0,), (0, 0)], 2, policy, None)
    before = loader.generate(*given)
    loader.load_checkpoint(tmp_path, of(JOINT))
    after, theirs = loader.generate(*given), saver.generate(*given)
    assert (after.tokens, after.published) == (theirs.tokens, theirs.published)
    assert after.frontiers.tobytes() == theirs.frontiers.tobytes()
    assert before.frontiers.tobytes() != after.frontiers.tobytes()


def test_loading_ends_a_generation_and_a_training(tmp_path: Path) -> None:
    engine = trained(JOINT)
    engine.save_checkpoint(tmp_path, of(JOINT), None)
    engine.prefill((1, 2, 3))
    assert engine.cache().length == 3
    engine.load_checkpoint(tmp_path, of(JOINT))
    assert engine.cache().length == 0
    with pytest.raises(Refused, match="does not follow"):
        engine.train_step(JOINT, JOINT.steps)


def test_heads_of_medusa_1_are_loaded_onto_the_base_again(tmp_path: Path) -> None:
    seeded().save_checkpoint(tmp_path, RELEASE, None)
    engine = trained(JOINT)
    assert logits(engine) != logits(seeded())
    engine.load_checkpoint(tmp_path, RELEASE)
    assert logits(engine) == logits(seeded())


def test_an_adapter_over_a_changed_backbone_is_saved_with_it(tmp_path: Path) -> None:
    engine = trained(JOINT)
    train(engine, DISTILLED)
    answer = engine.save_checkpoint(tmp_path, of(DISTILLED), None)
    assert answer.backbone == (stage.BACKBONE,)
    loader = seeded()
    loader.load_checkpoint(tmp_path, of(DISTILLED))
    assert logits(loader) == logits(engine)


def test_heads_that_learn_beside_a_changed_backbone_stay_beside_it(tmp_path: Path) -> None:
    alone = replace(
        JOINT, variant="medusa-1", medusa_weight=1.0, backbone_rate=0.0, warm_up=0, adapter_rank=0
    )
    trained(DISTILLED).save_checkpoint(made(tmp_path / "one"), of(DISTILLED), None)
    engine = seeded()
    engine.load_checkpoint(tmp_path / "one", of(DISTILLED))
    train(engine, alone)
    engine.save_checkpoint(made(tmp_path / "two"), of(DISTILLED), None)
    one, two = bits(tmp_path / "one"), bits(tmp_path / "two")
    assert one[stage.ADAPTER] == two[stage.ADAPTER]
    assert one[stage.HEADS] != two[stage.HEADS]


ELSEWHERE = """
import sys
from dataclasses import asdict
from pathlib import Path

from medusa_reference_engine import ReferenceEngine
from medusa_spec.coordinate import ModelShape, Release

shape = ModelShape(1, 8, 2, 1, 16, 16, 10_000.0, 1e-5, 2, "independent", 3)
engine = ReferenceEngine.seeded(shape, 3, 16)
engine.load_checkpoint(Path(sys.argv[1]), Release("base", "b" * 40, "tokenizer@1", "medusa-2"))
seen = engine.forward((3, 1, 4, 1, 5))
sys.stdout.write(seen.logits.tobytes().hex() + " " + seen.head_logits.tobytes().hex())
"""


def test_another_process_loads_it(tmp_path: Path) -> None:
    engine = trained(JOINT)
    engine.save_checkpoint(tmp_path, of(JOINT), None)
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path)]
    path = ":".join(sys.path)
    done = subprocess.run(
        command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [seen.hex() for seen in logits(engine)]
