"""What stands in files: read as the library wrote it, and written as it reads it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from medusa_conformance.stored import (
    ABSENT,
    Stored,
    listed,
    read_config,
    read_tensors,
    with_field,
    write_tensors,
)
from medusa_spec.documents import field_of

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
# Multiples of 1/64 below 2: every one of these dtypes holds them.
VALUES = np.array([[127, -1, 0], [64, -127, 3]]) / 64


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_the_library_wrote_is_read(tmp_path: Path, dtype: str) -> None:
    tensors = {
        "b.weight": torch.tensor(VALUES, dtype=DTYPES[dtype]),
        "a.bias": torch.tensor(VALUES[0], dtype=DTYPES[dtype]),
    }
    save_file(tensors, tmp_path / "some.safetensors")
    found = read_tensors(tmp_path / "some.safetensors")
    assert found == [
        Stored("a.bias", dtype, (3,), bytes_of(tensors["a.bias"])),
        Stored("b.weight", dtype, (2, 3), bytes_of(tensors["b.weight"])),
    ]
    numbers = found[1].numbers()
    assert numbers is not None
    assert numbers.dtype == np.float64
    assert numbers.tolist() == VALUES.tolist()


def test_what_holds_no_floats_has_no_numbers(tmp_path: Path) -> None:
    whole = {"i": torch.tensor([1, 2]), "b": torch.tensor([True])}
    save_file(whole, tmp_path / "some.safetensors")
    found = read_tensors(tmp_path / "some.safetensors")
    assert found is not None
    assert {(s.name, s.dtype, s.numbers() is None) for s in found} == {
        ("i", "I64", True),
        ("b", "BOOL", True),
    }


@pytest.mark.parametrize("content", [b"", b"this is no checkpoint\n", b"\x80\x04N.", b"PK\x03\x04"])
def test_what_is_no_such_file_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "some.safetensors").write_bytes(content)
    assert read_tensors(tmp_path / "some.safetensors") is None
    assert read_tensors(tmp_path / "no.safetensors") is None
    assert read_tensors(tmp_path) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_library_reads_what_is_written(tmp_path: Path, dtype: str) -> None:
    tensor = torch.tensor(VALUES, dtype=DTYPES[dtype])
    given = [
        Stored("a", dtype, (2, 3), bytes_of(tensor)),
        Stored("one", dtype, (), bytes_of(tensor[0, :1])),
        Stored("none", dtype, (0, 3), b""),
    ]
    write_tensors(tmp_path / "some.safetensors", given)
    found = load_file(tmp_path / "some.safetensors")
    assert found.keys() == {"a", "one", "none"}
    assert all(t.dtype == DTYPES[dtype] for t in found.values())
    assert torch.equal(found["a"], tensor)
    assert found["one"].item() == 127 / 64
    assert found["none"].shape == (0, 3)
    assert read_tensors(tmp_path / "some.safetensors") == sorted(given)


def test_a_file_of_nothing_is_one(tmp_path: Path) -> None:
    write_tensors(tmp_path / "some.safetensors", [])
    assert load_file(tmp_path / "some.safetensors") == {}
    assert read_tensors(tmp_path / "some.safetensors") == []


@pytest.mark.parametrize(
    ("dtype", "other"), [("F16", "F32"), ("BF16", "F32"), ("F64", "F32"), ("F32", "F64")]
)
def test_a_cast_keeps_the_values(tmp_path: Path, dtype: str, other: str) -> None:
    tensor = torch.tensor(VALUES, dtype=DTYPES[dtype])
    cast = Stored("a", dtype, (2, 3), bytes_of(tensor)).cast()
    assert (cast.name, cast.dtype, cast.shape) == ("a", other, (2, 3))
    write_tensors(tmp_path / "some.safetensors", [cast])
    found = load_file(tmp_path / "some.safetensors")["a"]
    assert found.dtype == DTYPES[other]
    assert found.tolist() == VALUES.tolist()


def test_a_folder_is_listed_by_file_and_tensor(tmp_path: Path) -> None:
    tensor = torch.tensor(VALUES, dtype=torch.bfloat16)
    save_file({"z": tensor, "y": tensor[0].clone()}, tmp_path / "b.safetensors")
    save_file({"x": tensor.float()}, tmp_path / "a.model")
    (tmp_path / "config.json").write_text("{}", "utf-8")
    torch.save({"w": tensor}, tmp_path / "c.pt")
    (tmp_path / "more").mkdir()
    save_file({"v": tensor}, tmp_path / "more" / "d.safetensors")

    def entry(file: str, name: str, dtype: str, of: torch.Tensor) -> dict[str, Any]:
        sha256 = hashlib.sha256(bytes_of(of)).hexdigest()
        shape = list(of.shape)
        return {"file": file, "tensor": name, "dtype": dtype, "shape": shape, "sha256": sha256}

    assert listed(tmp_path) == [
        entry("a.model", "x", "F32", tensor.float()),
        entry("b.safetensors", "y", "BF16", tensor[0]),
        entry("b.safetensors", "z", "BF16", tensor),
        entry("more/d.safetensors", "v", "BF16", tensor),
    ]


def test_a_config_is_json_or_nothing(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    assert read_config(file) is None
    for content, read in (
        (b'{"heads": 3}', {"heads": 3}),
        (b'{"heads": ', None),
        (b"\xff\xfe", None),
        (b"", None),
    ):
        file.write_bytes(content)
        assert read_config(file) == read


def test_a_dot_leads_into_an_object() -> None:
    config = {"heads": 3, "medusa": {"base": "b", "of": {"dtype": "float32"}}}
    for key, value in (
        ("heads", 3),
        ("medusa.base", "b"),
        ("medusa.of.dtype", "float32"),
        ("medusa.of", {"dtype": "float32"}),
        ("medusa.no.dtype", None),
        ("heads.base", None),
        ("no", None),
    ):
        assert field_of(config, key) == value
    assert field_of(None, "heads") is None
    kept = {"heads": 3, "medusa": {"base": "b", "of": {"dtype": "float16"}}}
    assert with_field(config, "medusa.of.dtype", "float16") == kept
    assert with_field(config, "medusa.base", None)["medusa"]["base"] is None
    assert with_field(config, "medusa.base", ABSENT)["medusa"] == {"of": {"dtype": "float32"}}
    assert with_field(config, "heads", ABSENT) == {"medusa": config["medusa"]}
    assert with_field(config, "blocks", 2)["blocks"] == 2
    # The config itself is as it was.
    assert config["heads"] == 3
    assert field_of(config, "medusa.of.dtype") == "float32"
