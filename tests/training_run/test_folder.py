"""A run's folder is its own, and is there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from medusa_reference_engine.training_run.surroundings import new_folder
from medusa_spec.errors import InputError


@pytest.mark.parametrize("there", [False, True])
def test_an_absent_or_empty_folder_is_filled_at_the_end(tmp_path: Path, there: bool) -> None:
    target = tmp_path / "trained"
    if there:
        target.mkdir()
    with new_folder(target) as place:
        (place / "one").write_text("1", "utf-8")
        assert not list(target.iterdir()) if there else not target.exists()
    assert [file.name for file in target.iterdir()] == ["one"]
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "trained"
    target.mkdir()
    (target / ".hidden").write_text("mine", "utf-8")
    with (
        pytest.raises(InputError, match="trained: is there already, and is not an empty folder"),
        new_folder(target),
    ):
        pytest.fail("nothing is to be done")
    assert [file.name for file in target.iterdir()] == [".hidden"]
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trained").write_text("mine", "utf-8")
    with pytest.raises(InputError, match="not an empty folder"), new_folder(tmp_path / "trained"):
        pytest.fail("nothing is to be done")
    with pytest.raises(InputError, match="cannot be made"), new_folder(tmp_path / "trained" / "in"):
        pytest.fail("nothing is to be done")
    assert (tmp_path / "trained").read_text("utf-8") == "mine"


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(place: Path) -> None:
        (place / "half").write_text("half", "utf-8")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "trained") as place:
        fail(place)
    assert list(tmp_path.iterdir()) == []


def test_what_somebody_put_there_meanwhile_stays(tmp_path: Path) -> None:
    target = tmp_path / "trained"

    def disturb(place: Path) -> None:
        (place / "one").write_text("1", "utf-8")
        target.mkdir()
        (target / "theirs").write_text("theirs", "utf-8")

    with pytest.raises(InputError, match="trained: cannot be written"), new_folder(target) as place:
        disturb(place)
    assert [file.name for file in tmp_path.rglob("*")] == ["trained", "theirs"]
