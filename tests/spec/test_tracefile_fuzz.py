"""A trace file of any origin is read soundly or refused in one line, in little memory."""

from __future__ import annotations

import io
import json
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from medusa_oracles import judge
from medusa_spec import InputError, Tolerance, Trace
from medusa_spec.tracefile import read_trace, write_trace

SUFFIXES = (".npz", ".safetensors")
EXACT = Tolerance(1e-9, 1e-9, "whatever is found is not compared")
few = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

Npz = Callable[..., Path]


@pytest.fixture(scope="module")
def lawful(coordinate: Any, lawful_trace: Any, literal: Any) -> Trace:
    trace: Trace = lawful_trace(coordinate(), literal, ((0, 2), (2, 6)))
    return trace


@pytest.fixture(scope="module", params=SUFFIXES)
def written(request: pytest.FixtureRequest, tmp_path_factory: Any, lawful: Trace) -> Path:
    """A lawful file of each kind, small enough to be damaged many times."""
    file: Path = tmp_path_factory.mktemp("written") / f"round{request.param}"
    kept = [name for name in lawful.arrays if lawful[name].size < 100]
    seen = {name: lawful[name] for name in kept} | dict(lawful.documents)
    write_trace(file, lawful.coordinate, seen, dtype="float64")
    return file


@pytest.fixture
def header(lawful: Trace) -> str:
    plain = {"format": "medusa-trace/1", "dtype": "float32"}
    return json.dumps(plain | {"coordinate": lawful.coordinate.document()})


@pytest.fixture
def npz(tmp_path: Path, header: str) -> Npz:
    """Make an npz file of members as they are given, behind a lawful header."""

    def build(*members: tuple[str, bytes], how: int = zipfile.ZIP_STORED) -> Path:
        file = tmp_path / "round.npz"
        with zipfile.ZipFile(file, "w", how) as archive:
            archive.writestr("header.npy", npy(np.frombuffer(header.encode(), np.uint8)))
            for name, content in members:
                archive.writestr(name, content)
        return file

    return build


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npy_head(shape: str, descr: str = "'<f4'", magic: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    """The head of an npy file that may lie about what follows."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return magic + struct.pack("<H", len(text)) + text


def tensors(file: Path, head: Any, data: bytes = b"", length: int | None = None) -> Path:
    encoded = head if isinstance(head, bytes) else json.dumps(head).encode()
    start = struct.pack("<Q", len(encoded) if length is None else length)
    file.write_bytes(start + encoded + data)
    return file


def outcome(file: Path) -> str | None:
    """The error of a file, or nothing where it is read: then it can be judged."""
    error: InputError | None = None
    try:
        found = read_trace(file)
    except InputError as caught:
        error = caught
    if error is not None:
        assert str(error).startswith(str(file))
        assert str(error).isprintable()
        assert len(str(error)) < 1000
        return str(error).removeprefix(f"{file}: ")
    assert all(array.dtype in (np.bool_, np.int64, np.float64) for array in found.arrays.values())
    judge(found.trace(EXACT, EXACT))
    return None


def test_a_file_that_ends_early_is_refused(written: Path, tmp_path: Path) -> None:
    whole, file = written.read_bytes(), tmp_path / written.name
    assert outcome(written) is None
    for length in (0, 1, 7, 8, 9, *range(50, len(whole), len(whole) // 40), len(whole) - 1):
        file.write_bytes(whole[:length])
        assert outcome(file) is not None, length


@few
@given(st.data())
def test_flipped_bits_are_refused_or_read(written: Path, tmp_path: Path, data: Any) -> None:
    content, file = bytearray(written.read_bytes()), tmp_path / written.name
    # Where lengths, names and shapes stand, as often as where numbers do.
    near = data.draw(st.sampled_from([100, 1000, len(content)]))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(1, near))
        place = -place if written.suffix == ".npz" else place - 1
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(content)
    outcome(file)


@few
@given(st.binary(max_size=300))
@example(b"PK\x05\x06" + bytes(18))
@example(b"PK\x03\x04" + bytes(300))
@example(struct.pack("<Q", 2) + b"{}")
@example(struct.pack("<Q", 4) + b"null")
@example(struct.pack("<Q", 2**64 - 1))
def test_rubbish_is_refused(tmp_path: Path, content: bytes) -> None:
    for suffix in SUFFIXES:
        file = tmp_path / f"round{suffix}"
        file.write_bytes(content)
        assert outcome(file) is not None


@few
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=8,
    ),
    st.sampled_from(["format", "dtype", "round", "engine", "documents", "coordinate", "other"]),
)
def test_a_header_of_anything_is_refused_or_read(
    tmp_path: Path, header: str, value: Any, field: str
) -> None:
    file = tmp_path / "round.safetensors"
    changed = json.dumps(json.loads(header) | {field: value})
    tensors(file, {"__metadata__": {"medusa": changed}})
    outcome(file)
    tensors(file, {"__metadata__": {"medusa": json.dumps(value)}})
    assert outcome(file) is not None
    tensors(file, {"__metadata__": {"medusa": header}, "commit.length": value})
    assert outcome(file) is not None


@pytest.mark.parametrize("field", ["coordinate", "documents", "dialect"])
@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_deep_nesting_is_no_traceback(field: str, pair: str, tmp_path: Path, header: str) -> None:
    opening, closing = ("[", "]") if pair == "[]" else ('{"a":', "}")
    text = json.dumps(json.loads(header) | {field: "HERE"})
    limit = sys.getrecursionlimit()
    # Just below the limit a parser comes to its end, and what comes behind it does not.
    for depth in (100, *range(limit - 250, limit), 100_000):
        nested = opening * depth + "1" + closing * depth
        deep = text.replace('"HERE"', nested)
        found = outcome(tensors(tmp_path / "1.safetensors", {"__metadata__": {"medusa": deep}}))
        assert found is not None
    assert found == "header: is nested too deeply"


def test_a_header_has_a_size(tmp_path: Path, header: str) -> None:
    long = header + " " * (4 * 2**20 + 1 - len(header))
    rule = "is 4,194,305 characters; at most 4,194,304 are read"
    found = outcome(tensors(tmp_path / "1.safetensors", {"__metadata__": {"medusa": long}}))
    assert found == f"header: {rule}"
    np.savez(tmp_path / "1.npz", header=np.frombuffer(long.encode(), np.uint8))
    # The head of the member counts as well.
    assert outcome(tmp_path / "1.npz") == f"header: {rule.replace('305 characters', '433 bytes')}"


FOUR = bytes(16)
MEMBERS: dict[str, tuple[list[tuple[str, bytes]], str]] = {
    "an absolute name": ([("/etc/passwd", b"")], "/etc/passwd: no such name in a trace"),
    "a way out": ([("../../tree.slots.npy", b"")], "../../tree.slots: no such name"),
    "a long name": ([("n" * 60_000, b"")], "no such name in a trace"),
    "a line break": ([("a\nb.npy", b"")], "a\\nb: no such name in a trace"),
    "twice": ([("tree.slots.npy", npy([1])), ("tree.slots.npy", npy([2]))], "is given twice"),
    "two suffixes": ([("tree.slots", npy([1])), ("tree.slots.npy", npy([2]))], "is given twice"),
    "two headers": ([("header.npy", npy([1]))], "header: is given twice"),
    "objects": ([("tree.slots.npy", npy(np.array([{}])))], "tree.slots: dtype object"),
    "records": ([("tree.slots.npy", npy(np.zeros(1, "i4,f4")))], "tree.slots: dtype [("),
    "text": ([("tree.slots.npy", npy(["a"]))], "tree.slots: dtype <U1"),
    "complex": ([("tree.slots.npy", npy([1j]))], "tree.slots: dtype complex128"),
    "too great": ([("tree.slots.npy", npy(np.array([2**63], np.uint64)))], "9223372036854775808"),
    "a batch": ([("tree.slots.npy", npy([[1]]))], "tree.slots: has 2 axes, [1, 1]; expected"),
    "no npy": ([("tree.slots.npy", b"rubbish")], "not npz: ValueError"),
    "an empty npy": ([("tree.slots.npy", b"")], "not npz: ValueError"),
    "a shape to work out": ([("tree.slots.npy", npy_head("(2**2,)") + FOUR)], "not npz: ValueE"),
    "shape huge": (
        [("tree.slots.npy", npy_head("(4611686018427387904,)") + FOUR)],
        "takes 18,446,744,073,709,551,616 bytes, and there are 16",
    ),
    "shape negative": ([("tree.slots.npy", npy_head("(-4,)") + FOUR)], "has a negative size"),
    "shape twice negative": ([("tree.mask.npy", npy_head("(-2, -2)") + FOUR)], "negative size"),
    "shape of digits": ([("tree.slots.npy", npy_head(f"({'9' * 5000},)") + FOUR)], "not npz"),
    "no numbers, huge": ([("tree.mask.npy", npy_head(f"(0, {10**30})"))], "not npz"),
    "longer than it says": ([("tree.slots.npy", npy_head("(3,)") + FOUR)], "there are 16"),
    "shorter than it says": ([("tree.slots.npy", npy_head("(5,)") + FOUR)], "there are 16"),
    "another version": (
        [("tree.slots.npy", npy_head("(4,)", magic=b"\x93NUMPY\x03\x00") + FOUR)],
        "version (3, 0) of npy",
    ),
    "code for a dtype": ([("tree.slots.npy", npy_head("(4,)", "__import__('os')"))], "not npz"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", MEMBERS)
def test_a_member_that_is_no_array_of_a_trace_is_refused(case: str, npz: Npz) -> None:
    members, rule = MEMBERS[case]
    found = outcome(npz(*members))
    assert found is not None
    assert rule in found


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="no float is wider here")
def test_a_float_of_more_than_eight_bytes_is_refused(npz: Npz) -> None:
    found = outcome(npz(("frontier.target.npy", npy(np.zeros(1, np.longdouble)))))
    assert str(found).startswith("frontier.target: dtype float")


@pytest.mark.parametrize("how", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_packer_without_a_bound_is_refused(how: int, npz: Npz) -> None:
    assert outcome(npz(how=how)) == "header: is neither stored nor deflated"


ENTRY = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
HEADS: dict[str, tuple[Any, bytes, str]] = {
    "typo": ({"tree.slot": ENTRY}, FOUR, "tree.slot: no such name in a trace; the nearest is"),
    "eight-bit float": ({"tree.slots": ENTRY | {"dtype": "F8_E5M2"}}, FOUR, "dtype F8_E5M2; read"),
    "no dtype": ({"tree.slots": {"shape": [4]}}, FOUR, "not safetensors: KeyError"),
    "no entry": ({"tree.slots": [1]}, FOUR, "not safetensors: TypeError"),
    "a true size": ({"tree.slots": ENTRY | {"shape": [True]}}, FOUR, "is no integer"),
    "half a size": ({"tree.slots": ENTRY | {"shape": [4.0]}}, FOUR, "is no integer"),
    "three offsets": ({"tree.slots": ENTRY | {"data_offsets": [0, 8, 16]}}, FOUR, "ValueError"),
    "a gap": ({"tree.slots": ENTRY | {"data_offsets": [4, 20]}}, FOUR + FOUR, "begin at 4, and"),
    "before the file": ({"tree.slots": ENTRY | {"data_offsets": [-16, 0]}}, FOUR, "begin at -16"),
    "backwards": ({"tree.slots": ENTRY | {"data_offsets": [0, -16]}}, FOUR, "tree.slots"),
    "overlap": ({"tree.slots": ENTRY, "tree.depths": ENTRY}, FOUR, "begin at 0, and those before"),
    "beyond the file": ({"tree.slots": ENTRY}, FOUR[:-1], "the file ends within its numbers"),
    "left over": ({"tree.slots": ENTRY}, FOUR + b"1", "1 bytes belong to no array"),
    "shape too small": ({"tree.slots": ENTRY | {"shape": [3]}}, FOUR, "takes 12 bytes, and there"),
    "shape huge": ({"tree.slots": ENTRY | {"shape": [2**62]}}, FOUR, "and there are 16"),
    "many axes": ({"tree.slots": ENTRY | {"shape": [9] * 9**5}}, FOUR, "has 59049 axes, [9, 9,"),
    "a batch": ({"frontier.heads": ENTRY | {"shape": [1, 2, 2]}}, FOUR, "expected are 2, [K, V]"),
}


@pytest.mark.parametrize("case", HEADS)
def test_an_entry_that_is_no_array_of_a_trace_is_refused(
    case: str, tmp_path: Path, header: str
) -> None:
    entries, data, rule = HEADS[case]
    head = {"__metadata__": {"medusa": header}, **entries}
    found = outcome(tensors(tmp_path / "round.safetensors", head, data))
    assert found is not None
    assert rule in found


def test_a_header_is_needed(tmp_path: Path, header: str) -> None:
    file = tmp_path / "round.safetensors"
    no_text = "__metadata__.medusa: there is no such text"
    assert outcome(tensors(file, {})) == no_text
    assert outcome(tensors(file, {"__metadata__": {"medusa": 1}})) == no_text
    assert outcome(tensors(file, {"__metadata__": {"other": header}})) == no_text
    twice = header[:-1] + ', "dtype": "float64"}'
    found = outcome(tensors(file, {"__metadata__": {"medusa": twice}}))
    assert found == "header.dtype: is given twice"
    file = tmp_path / "round.npz"
    np.savez(file, **{"tree.slots": [1]})
    assert outcome(file) == "header: there is no such member"
    np.savez(file, header=np.array(header))
    assert str(outcome(file)).startswith("header: is <U")


def test_a_newer_format_is_refused(tmp_path: Path, header: str) -> None:
    newer = header.replace("medusa-trace/1", "medusa-trace/2")
    found = outcome(tensors(tmp_path / "1.safetensors", {"__metadata__": {"medusa": newer}}))
    assert found == "header.format: 'medusa-trace/1' was expected"


def peak(call: Callable[[], Any]) -> int:
    """The most memory that a call takes, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused_in_little_memory(file: Path) -> str:
    found: list[str | None] = []
    assert peak(lambda: found.append(outcome(file))) < 4 * 2**20
    assert found[0] is not None
    return found[0]


BOMB = 64 * 2**20


def claim(npz: Npz, head: bytes, size: int) -> Path:
    """A member of many zeros behind `head`, whose directory entry says that it has `size` bytes."""
    file = npz(("frontier.target.npy", head + bytes(BOMB)), how=zipfile.ZIP_DEFLATED)
    content = bytearray(file.read_bytes())
    struct.pack_into("<I", content, content.rindex(b"PK\x01\x02") + 24, size)
    file.write_bytes(content)
    return file


@pytest.mark.parametrize(
    ("claimed", "rule"),
    [
        (2**30 + 4, "with it, the arrays take more than 2,147,483,648 bytes of memory"),
        (2**30, "takes 1,073,741,828 bytes, and there are 1,073,741,824"),
    ],
)
def test_a_bomb_is_refused_before_it_is_unpacked(claimed: int, rule: str, npz: Npz) -> None:
    # In memory, its numbers would take eight bytes more than the limit.
    head = npy_head(f"({2**28 + 1},)")
    file = claim(npz, head, len(head) + claimed)
    assert file.stat().st_size < BOMB // 500
    assert rule in refused_in_little_memory(file)


def test_a_stream_longer_than_its_member_is_cut_off(npz: Npz) -> None:
    head = npy_head("(4,)")
    file = claim(npz, head, len(head) + 16)
    assert "not npz: BadZipFile: Bad CRC-32" in refused_in_little_memory(file)


def test_a_directory_of_a_million_members_is_not_read(tmp_path: Path) -> None:
    members = 1_000_000
    entry = struct.pack("<4s16xI2xI12xI", b"PK\x01\x02", 0, 0, 0)[:46].ljust(46, b"\0")
    end = struct.pack("<4s4xHHIIH", b"PK\x05\x06", 65535, 65535, 46 * members, 0, 0)
    file = tmp_path / "round.npz"
    file.write_bytes(entry * members + end)
    assert refused_in_little_memory(file).startswith("not npz: BadZipFile")


def test_a_head_of_a_hundred_megabytes_is_not_read(tmp_path: Path) -> None:
    file = tensors(tmp_path / "round.safetensors", {}, length=100 * 2**20)
    with file.open("r+b") as stream:
        stream.truncate(200 * 2**20)
    found = refused_in_little_memory(file)
    assert found == "the head is 104,857,600 bytes; at most 8,388,608 are read"


def test_a_head_that_is_cut_off_is_told_by_what_is_there(tmp_path: Path) -> None:
    file = tensors(tmp_path / "round.safetensors", {}, length=1888)
    with file.open("r+b") as stream:
        stream.truncate(1008)
    assert outcome(file) == "the head is 1,888 bytes, and the file ends after 1,000 of them"


def test_numbers_beyond_the_memory_are_not_read(tmp_path: Path, header: str) -> None:
    size = 2**28
    entry = {"dtype": "I8", "shape": [size + 1], "data_offsets": [0, size + 1]}
    head = {"__metadata__": {"medusa": header}, "tree.slots": entry}
    file = tensors(tmp_path / "round.safetensors", head)
    with file.open("r+b") as stream:
        # A hole: it takes no room on the disk.
        stream.truncate(file.stat().st_size + size + 1)
    found = refused_in_little_memory(file)
    assert found.startswith("tree.slots: with it, the arrays take more than")
