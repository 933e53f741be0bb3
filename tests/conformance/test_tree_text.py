"""The tree of a finding in text: the right row is marked, and a large tree is not drawn whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from medusa_conformance.runner import Located
from medusa_conformance.tree_text import BRANCHES, WHOLE, WIDTH, draw_tree
from medusa_manifests import load, names
from medusa_spec import Coordinate
from medusa_spec.coordinate import Generation
from medusa_spec.findings import Finding


def drawn(
    code: str,
    where: dict[str, int],
    coordinate: Coordinate | None = None,
    sides: tuple[Any, Any] = (None, None),
    generation: int = 1,
    number: int = 0,
) -> str | None:
    finding = Finding(code, "made up", where, *sides)
    given = load("six-node") if coordinate is None else coordinate
    return draw_tree(Located(finding, given, generation, number))


def test_the_six_nodes_with_a_row_that_sees_too_much() -> None:
    # 0x03B: root, A, B, A1, A2, B1; row 4 is A2, which may not see B.
    expected = """\
  row  rank     depth  must see
    0  root         0  █·····
    1  ├─ 0         1  ██····
    3  │  ├─ 0      2  ██·█··
>   4  │  └─ 1      2  ██··█·    row 4: key 2 must be hidden and is seen
    2  └─ 1         1  █·█···    key 2
    5     └─ 0      2  █·█··█"""
    assert drawn("TREE.MASK_IS_ANCESTRY", {"row": 4, "key": 2}, sides=(False, True)) == expected


def marked(text: str | None) -> list[str]:
    assert text is not None
    return [line for line in text.splitlines() if line.startswith(">")]


@pytest.mark.parametrize(
    ("code", "where", "row", "words"),
    [
        ("TREE.SLOT", {"row": 5}, 5, "row 5"),
        ("VERIFICATION.PATH_LOGITS", {"row": 3, "token": 2}, 3, "row 3"),
        ("VERIFICATION.PATH_KV", {"layer": 1, "row": 1}, 1, "row 1"),
        ("COORDINATE.DOMAINS", {"row": 0}, 0, "row 0"),
        # Retrieval: 0 1 3, 0 1 4, 0 2 5.
        ("TREE.RETRIEVAL_CHAIN", {"path": 2, "entry": 1}, 2, "path 2, entry 1"),
        ("TREE.RETRIEVAL_MAXIMAL", {"path": 1}, 4, "path 1"),
        ("POSTERIOR.GREEDY_MATCH", {"path": 0, "edge": 0}, 1, "path 0, entry 1"),
        ("POSTERIOR.STRICT", {"path": 0, "edge": 1}, 3, "path 0, entry 2"),
        ("COMMIT.ONE_PATH", {"path": 2}, 5, "path 2"),
        ("TREE.SENTINEL", {"path": 2, "entry": 3}, 5, "path 2, entry 3, behind its end"),
    ],
)
def test_the_row_that_a_finding_is_about_is_marked(
    code: str, where: dict[str, int], row: int, words: str
) -> None:
    (line,) = marked(drawn(code, where))
    assert line.split()[1] == str(row)
    assert line.endswith(f"  {words}")


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        ((1, 11), "row 5: 11, must be 1"),
        ((np.int64(1_234_567), np.int64(0)), "row 5: 0, must be 1234567"),
        ((0.1 + 0.2, float("nan")), "row 5: nan, must be 0.3"),
        (([1, 2], [1, 3]), "row 5"),
        ((3, None), "row 5"),
    ],
)
def test_one_number_is_said_beside_its_row(sides: tuple[Any, Any], words: str) -> None:
    (line,) = marked(drawn("TREE.SLOT", {"row": 5}, sides=sides))
    assert line.endswith(f"  {words}")


@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("HEADS.OFFSET", {"head": 0, "position": 1}),
        ("COORDINATE.SCHEMA", {}),
        ("COMMIT.ALL_LAYERS", {"layer": 0, "place": 1}),
        ("COMMIT.PREFIX_UNTOUCHED", {"cache_row": 1}),
        ("ROUND.PROGRESS", {"round": 1}),
        ("TREE.SLOT", {"row": 6}),
        ("TREE.RETRIEVAL_MAXIMAL", {"path": 3}),
    ],
)
def test_what_has_no_place_in_the_tree_is_not_drawn(code: str, where: dict[str, int]) -> None:
    assert drawn(code, where) is None


def test_the_key_of_a_rectangle_stands_behind_the_prefix() -> None:
    six, code = load("six-node"), "VERIFICATION.RECTANGULAR_MASK"
    prefix = len(six.prefix)

    def keys(**changes: Any) -> list[str]:
        text = drawn(code, {"row": 4, "key": prefix + 2}, sides=(False, True), **changes)
        assert text is not None
        return [line.split()[0] for line in text.splitlines() if line.endswith(f"key {prefix + 2}")]

    assert keys() == ["2"]
    # Later rounds stand behind tokens that a finding does not count.
    assert keys(number=1) == []
    assert marked(drawn(code, {"row": 4, "key": 0}, sides=(True, False)))[0].endswith(
        "row 4: key 0 must be seen and is hidden"
    )


def test_an_earlier_generation_is_drawn_over_its_own_tree() -> None:
    both = replace(load("six-node"), earlier=Generation((1, 2), ((0,),)))
    text = drawn("VERIFICATION.POSITION", {"row": 1}, both, generation=0)
    assert text is not None
    assert len(text.splitlines()) == 3
    assert drawn("VERIFICATION.POSITION", {"row": 5}, both, generation=0) is None
    assert marked(drawn("VERIFICATION.POSITION", {"row": 5}, both, generation=1))
    assert marked(drawn("TREE.SLOT", {"row": 5}, both, generation=0))
    # A proposal may have been made for either.
    assert drawn("PROPOSAL.GATHER", {"row": 1}, both, generation=0) is None


def wide(*paths: tuple[int, ...], **changes: Any) -> Coordinate:
    return replace(load("six-node"), paths=paths, topk=64, capacity=8192, **changes)


def test_of_a_large_tree_only_the_way_to_the_row_is_drawn() -> None:
    paths = [(a,) for a in range(10)] + [(a, b) for a in range(10) for b in range(3)]
    text = drawn("TREE.SLOT", {"row": 1 + 10 + 4 * 3 + 1}, wide(*paths))
    # Rows: the root, ten children, three below each; the row is (4, 1).
    assert (
        text
        == """\
  row  rank            depth
    0  root                0
       ├─ … 16 more
    5  ├─ 4                1
       │  ├─ … 1 more
>  24  │  ├─ 1             2  row 24
       │  └─ … 1 more
       └─ … 20 more"""
    )


def test_a_tree_is_drawn_whole_up_to_a_size() -> None:
    fits = wide(*((rank,) for rank in range(WHOLE - 1)))
    beyond = wide(*((rank,) for rank in range(WHOLE)))
    text = drawn("TREE.SLOT", {"row": 3}, fits)
    assert text is not None
    assert len(text.splitlines()) == 1 + WHOLE
    text = drawn("TREE.SLOT", {"row": 3}, beyond)
    assert text is not None
    assert len(text.splitlines()) == 5


def test_a_deep_path_fits_the_width() -> None:
    deep = wide(*((0,) * depth for depth in range(1, 61)), heads=60)
    text = drawn("TREE.SLOT", {"row": 60}, deep)
    assert text is not None
    assert len(text.splitlines()) == 62
    assert max(map(len, text.splitlines())) <= WIDTH
    assert marked(text)[0].split()[1] == "60"
    assert marked(text)[0][7:].startswith("…")
    assert len(marked(text)[0][7:].split("  60")[0]) <= BRANCHES + 5


@pytest.mark.parametrize("name", names())
def test_every_row_of_every_manifest_is_found_and_fits(name: str) -> None:
    coordinate = load(name)
    for row in {0, 1, coordinate.nodes // 2, coordinate.nodes - 1} & set(range(coordinate.nodes)):
        text = drawn("TREE.POSITION_IS_DEPTH", {"row": row}, coordinate)
        assert marked(text)[0].split()[1] == str(row)
        assert text is not None
        lines = text.splitlines()
        assert max(map(len, lines)) <= WIDTH
        more = sum(int(line.split()[-2]) for line in lines if line.endswith(" more"))
        rows = sum(line[:7].strip(" >").isdigit() for line in lines)
        assert rows + more == coordinate.nodes
