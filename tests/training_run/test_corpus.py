"""What is learnt from, and what is held out."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from medusa_reference_engine.training_run.corpus import (
    Text,
    read_corpus,
    sources,
    standard_library,
    windows,
)
from medusa_spec.errors import InputError

UNREAD = (
    "site-packages/other.py",
    "test/test_a.py",
    "unit/tests/test_b.py",
    "encodings/cp037.py",
    "_sysconfigdata__linux.py",
    "note.txt",
)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Forty files, of which each holds its own number, and some that are not read."""
    for number in range(40):
        file = tmp_path / ("deep" if number % 3 else ".") / f"m{number:02}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes([number]) * (number + 1))
    for name in UNREAD:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\xff" * 100)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "folder.py").mkdir()
    return tmp_path


def numbers(text: Text) -> set[int]:
    return set(text.tolist())


def test_the_last_two_of_ten_files_are_held_out(library: Path) -> None:
    names = sorted(
        file.relative_to(library).as_posix()
        for file in (*library.glob("m*.py"), *library.glob("deep/m*.py"))
    )
    assert len(names) == 40
    order = [int(name[-5:-3]) for name in names]
    corpus = read_corpus(library, 10_000, least=1)
    assert numbers(corpus.calibration) == set(order[8::10])
    assert numbers(corpus.prompts) == set(order[9::10])
    assert numbers(corpus.training) == set(order) - set(order[8::10]) - set(order[9::10])
    assert corpus.files == 40
    whole = b"".join(bytes([number]) * (number + 1) for number in order)
    assert corpus.sha256 == hashlib.sha256(whole).hexdigest()


def test_reading_ends_at_the_limit_within_a_file(library: Path) -> None:
    whole, cut = (read_corpus(library, limit, least=1) for limit in (10_000, 500))
    texts = (cut.training, cut.calibration, cut.prompts)
    assert sum(map(len, texts)) == 500
    assert cut.files < 40
    for part, of in zip(texts, (whole.training, whole.calibration, whole.prompts), strict=True):
        assert part.tolist() == of[: len(part)].tolist()


def test_the_same_folder_gives_the_same_text(library: Path) -> None:
    one, other = (read_corpus(library, 600, least=1) for _ in range(2))
    assert one.training.tolist() == other.training.tolist()
    assert one.sha256 == other.sha256


def test_a_folder_with_too_little_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("pass\n", "utf-8")
    with pytest.raises(InputError, match="too little Python to learn from: 1 files"):
        read_corpus(tmp_path, 1000, least=1)


def test_the_standard_library_is_there_and_nothing_else_is_read() -> None:
    folder = standard_library()
    names = {file.relative_to(folder).as_posix() for file in sources(folder)}
    assert {"ast.py", "json/decoder.py"} <= names
    assert not any("site-packages" in name or "/test" in name for name in names)


def test_windows_are_pieces_of_the_text() -> None:
    text = (np.arange(100) % 256).astype(np.uint8)
    drawn = windows(text, 50, 7, np.random.default_rng(0))
    assert drawn.shape == (50, 7)
    assert (np.diff(drawn, axis=1) == 1).all()
    everywhere = windows(text, 2000, 99, np.random.default_rng(0))[:, 0]
    assert set(everywhere.tolist()) == {0, 1}
