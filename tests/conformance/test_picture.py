"""The picture shows what the document says: nothing more, nothing less, all of it on the page."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from medusa_conformance.picture import DEPTHS, MAX_ROWS, STYLE, Marks, picture, svg_text
from medusa_spec.errors import InputError
from medusa_spec.files import write_text

SVG = "{http://www.w3.org/2000/svg}"

ROOT_ONLY: list[list[int]] = []
CHAIN = [[0] * depth for depth in range(1, 64)]
FAN = [[rank] for rank in range(63)]
UNEQUAL = [[0], [3], [7], [0, 0], [0, 2], [7, 9], [0, 2, 1], [0, 2, 1, 5]]
LARGEST = [[rank] for rank in range(255)]

Derive = Callable[[list[list[int]]], dict[str, Any]]


def draw(document: Mapping[str, Any], target: Path) -> None:
    write_text(target, svg_text(document, target))


@pytest.fixture(scope="module")
def derive(literal: ModuleType) -> Derive:
    """A document of `derive --json` by the literal formula."""

    def document(paths: list[list[int]]) -> dict[str, Any]:
        topk = max((max(path) for path in paths), default=0) + 1
        return {
            "name": "tree",
            "topk": topk,
            "heads": max(map(len, paths), default=0),
            "nodes": len(paths) + 1,
            "sentinel": -7,
            "retrieval_order": "pinned",
            "paths": [list(path) for path in literal.rows(paths)[1:]],
            **literal.tree(paths, topk, "pinned", -7),
        }

    return document


def drawn(document: Mapping[str, Any], folder: Path) -> ElementTree.Element:
    target = folder / "tree.svg"
    draw(document, target)
    return ElementTree.parse(target).getroot()


def group(svg: ElementTree.Element, name: str) -> ElementTree.Element:
    found = svg.findall(f".//{SVG}g[@class='{name}']")
    assert len(found) == 1
    return found[0]


def words(element: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in element.findall(f"{SVG}text")]


def number(element: ElementTree.Element, name: str) -> float:
    return float(element.attrib[name])


def drawn_mask(svg: ElementTree.Element) -> list[tuple[int, int]]:
    """The pairs (row, column) whose cell is drawn, from where the cells lie in their frame."""
    mask = group(svg, "mask")
    (frame,) = mask.findall(f"{SVG}rect[@class='grid']")
    labels = group(mask, "faint")
    rows = len(words(labels)) // 2
    side = number(frame, "width") / rows
    return [
        (
            int((number(cell, "y") - number(frame, "y")) // side),
            int((number(cell, "x") - number(frame, "x")) // side),
        )
        for cell in mask.findall(f"{SVG}rect[@class='seen']")
    ]


def test_six_nodes(tmp_path: Path, six_node: dict[str, Any]) -> None:
    svg = drawn(six_node, tmp_path)
    nodes = svg.findall(f".//{SVG}g[@class='node']")
    assert [words(node) for node in nodes] == [
        ["0"],
        ["1", "0"],
        ["2", "1"],
        ["3", "0"],
        ["4", "1"],
        ["5", "0"],
    ]
    assert nodes[5].findtext(f"{SVG}title") == "row 5, path (1, 0), slot 3, depth 2"
    assert len(svg.findall(f".//{SVG}path[@class='edge']")) == 5
    assert drawn_mask(svg) == [
        (0, 0),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 2),
        (3, 0),
        (3, 1),
        (3, 3),
        (4, 0),
        (4, 1),
        (4, 4),
        (5, 0),
        (5, 2),
        (5, 5),
    ]
    assert [words(line) for line in group(svg, "retrieval").findall(f"{SVG}g")] == [
        ["0", "0", "1", "3"],
        ["1", "0", "1", "4"],
        ["2", "0", "2", "5"],
    ]


@pytest.mark.parametrize("paths", [ROOT_ONLY, UNEQUAL, CHAIN, FAN, LARGEST])
def test_all_of_the_document(paths: list[list[int]], derive: Derive, tmp_path: Path) -> None:
    document = derive(paths)
    svg = drawn(document, tmp_path)
    nodes = svg.findall(f".//{SVG}g[@class='node']")
    ranks = [[], *([str(path[-1])] for path in document["paths"])]
    assert [words(node) for node in nodes] == [[str(row), *r] for row, r in enumerate(ranks)]
    assert len(svg.findall(f".//{SVG}path[@class='edge']")) == len(paths)
    mask = document["attention_mask"]
    rows = range(len(mask))
    assert drawn_mask(svg) == [
        (row, column) for row in rows for column in rows if mask[row][column]
    ]
    assert [words(line) for line in group(svg, "retrieval").findall(f"{SVG}g")] == [
        [str(index), *("·" if row < 0 else str(row) for row in retrieved)]
        for index, retrieved in enumerate(document["retrieve_indices"])
    ]


@pytest.mark.parametrize("paths", [ROOT_ONLY, UNEQUAL, CHAIN, FAN, LARGEST])
def test_everything_is_on_the_page_and_legible(
    paths: list[list[int]], derive: Derive, tmp_path: Path
) -> None:
    svg = drawn(derive(paths), tmp_path)
    width, height = number(svg, "width"), number(svg, "height")
    for text in svg.iter(f"{SVG}text"):
        size, length = number(text, "font-size"), len(text.text or "")
        assert size >= 9
        # The widest monospaced faces take 0.62 of their size for a glyph.
        wide = 0.62 * size * length
        anchor = text.get("text-anchor", "start")
        left = number(text, "x") - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
        assert left >= 0
        assert left + wide <= width
        assert size <= number(text, "y") <= height
    for box in svg.iter(f"{SVG}rect"):
        assert number(box, "x") >= 0
        assert number(box, "y") >= 0
        assert number(box, "x") + number(box, "width") <= width
        assert number(box, "y") + number(box, "height") <= height


def test_a_node_stands_on_the_line_of_its_mask_row_at_its_depth(
    derive: Derive, tmp_path: Path
) -> None:
    document = derive(UNEQUAL)
    svg = drawn(document, tmp_path)
    boxes = [node.find(f"{SVG}rect") for node in svg.findall(f".//{SVG}g[@class='node']")]
    tops = [number(box, "y") for box in boxes if box is not None]
    lefts = [number(box, "x") for box in boxes if box is not None]
    cells = group(svg, "mask").findall(f"{SVG}rect[@class='seen']")
    own = [
        cell for cell, (row, column) in zip(cells, drawn_mask(svg), strict=True) if row == column
    ]
    assert [top - number(cell, "y") for top, cell in zip(tops, own, strict=True)] == [1.0] * 9
    step = lefts[1] - lefts[0]
    depths = document["position_ids"]
    assert lefts == [lefts[0] + depth * step for depth in depths]
    assert [cell.get("fill") for cell in own] == [DEPTHS[depth] for depth in depths]


def luminance(colour: str) -> float:
    parts = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_colours_stand_out_from_both_backgrounds() -> None:
    """WCAG asks for 4.5 between text and its ground, and for 3 between a shape and its ground."""
    light, dark = STYLE.split("@media")
    for style in (light, dark):
        grounds = re.findall(r"\.(?:card|band) \{ fill: (#\w+)", style)
        texts = re.findall(r"(?:^text|^\.faint, \.faint text) .*fill: (#\w+)", style, re.MULTILINE)
        assert len(grounds) == len(texts) == 2
        for ground in grounds:
            assert min(contrast(ground, text) for text in texts) >= 4.5
            assert min(contrast(ground, fill) for fill in DEPTHS) >= 3
            (mark,) = re.findall(r"^\.mark \{ stroke: (#\w+)", style, re.MULTILINE)
            assert contrast(ground, mark) >= 3
    assert min(contrast("#ffffff", fill) for fill in DEPTHS) >= 4.5


def test_marks_frame_what_they_name(six_node: dict[str, Any]) -> None:
    text = ElementTree.tostring(picture(six_node, Marks(row=4, key=1, path=2)))
    svg = ElementTree.fromstring(text)
    row, key, cell, path = group(svg, "marks").findall(f"{SVG}rect")
    assert len(group(svg, "marks").findall(f"{SVG}path[@class='flag']")) == 3
    cells = dict(zip(drawn_mask(svg), group(svg, "mask").findall(f"{SVG}rect"), strict=False))
    # A cell stands a pixel inside its line and its column.
    assert number(row, "y") == number(cells[4, 1], "y") - 1
    assert number(key, "x") == number(cells[4, 1], "x") - 1
    # Where the two cross, the cell has a frame of its own.
    assert (number(cell, "x"), number(cell, "y")) == (number(key, "x"), number(row, "y"))
    assert number(cell, "width") == number(key, "width") == number(cell, "height")
    retrieved = group(svg, "retrieval").findall(f"{SVG}g")[2]
    for box in retrieved.findall(f"{SVG}rect"):
        assert number(path, "x") <= number(box, "x")
        assert number(box, "x") + number(box, "width") <= number(path, "x") + number(path, "width")
        assert number(path, "y") <= number(box, "y")
    plain = ElementTree.tostring(picture(six_node), encoding="unicode")
    assert "mark" not in plain
    assert "<style" not in plain


def test_a_small_tree_has_a_narrow_picture(six_node: dict[str, Any]) -> None:
    two = six_node | {
        "nodes": 2,
        "paths": [[0]],
        "parents": [-1, 0],
        "tree_indices": [0, 1],
        "attention_mask": [[1, 0], [1, 1]],
        "position_ids": [0, 1],
        "retrieve_indices": [[0, 1]],
    }
    svg = picture(two)
    words = [text.text or "" for text in svg.iter("text")]
    for line in ("attention mask:", "row sees column", "retrieval canonical · sentinel -1"):
        assert line in words
    # A telephone is 390 pixels wide.
    assert number(svg, "width") < 390


def test_self_contained(tmp_path: Path, six_node: dict[str, Any]) -> None:
    draw(six_node, tmp_path / "tree.svg")
    text = (tmp_path / "tree.svg").read_text("utf-8")
    outside = text.replace("http://www.w3.org/2000/svg", "")
    assert "http" not in outside
    assert "href" not in outside
    assert "url(" not in outside


def test_a_name_that_xml_cannot_hold(tmp_path: Path, six_node: dict[str, Any]) -> None:
    svg = drawn(six_node | {"name": "a\x01<b>\udc80"}, tmp_path)
    assert words(svg)[0] == "a\ufffd<b>\ufffd"


@pytest.mark.parametrize("name", ["tree.png", "tree", "tree.svg.gz", ".svg"])
def test_another_format_is_refused(name: str, tmp_path: Path, six_node: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=re.escape("its name ends in .svg")):
        draw(six_node, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_too_many_rows_are_refused_and_an_older_picture_stays(
    derive: Derive, tmp_path: Path
) -> None:
    assert MAX_ROWS == 256
    target = tmp_path / "tree.svg"
    target.write_text("older")
    with pytest.raises(InputError, match="257 rows are too many to draw; 256 are the most"):
        draw(derive([[rank] for rank in range(256)]), target)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["older"]


def test_written_whole_or_not_at_all(tmp_path: Path, six_node: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"missing/tree\.svg: cannot be written: No such file"):
        draw(six_node, tmp_path / "missing" / "tree.svg")
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(InputError, match=r"taken\.svg: cannot be written: Is a directory"):
        draw(six_node, tmp_path / "taken.svg")
    assert [file.name for file in tmp_path.iterdir()] == ["taken.svg"]


def test_readable_by_whom_any_new_file_is(tmp_path: Path, six_node: dict[str, Any]) -> None:
    (tmp_path / "other").touch()
    draw(six_node, tmp_path / "tree.svg")
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert len(modes) == 1
