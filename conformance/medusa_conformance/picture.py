"""A derivation as one SVG: the tree, beside it the mask on the same lines, beneath the paths.

Every packed row is one line: its node stands at its depth, and behind it the mask says what it
sees. The colour of a node and of a cell is the depth of the row that it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from medusa_spec.errors import InputError

MAX_ROWS = 256
"""Rows of the largest tree that is drawn: a label still fits its cell, and a page its picture."""

MARGIN = 24
CAPTIONS = (
    ("tree: row | rank",),
    ("attention mask:", "row sees column"),
    ("retrieval: path, then its rows",),
)
"""What the parts show; a narrow part has the pieces of its caption under one another."""
CAPTION_FONT, CAPTION_LINE = 12, 15
GLYPH = 0.62
"""Width of a glyph of the monospaced font, as a part of its size."""
LINE_HEIGHTS = ((12, 28), (32, 22), (MAX_ROWS, 18))
"""Height of a line in pixels, by the number of rows up to which it holds."""

# White text stands out from each of them, and each of them from either background.
DEPTHS = (
    "#626d7c",
    "#2563c9",
    "#0b7a6f",
    "#a35a00",
    "#bd3757",
    "#8549cc",
    "#3d7a1f",
    "#91614b",
)

# The card has its own background: no page can make it unreadable.
STYLE = """
text { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #24292f }
.card { fill: #ffffff; stroke: #d0d7de }
.band { fill: #f3f5f8 }
.grid { stroke: #d0d7de; fill: none }
.edge { stroke: #8c96a3; stroke-opacity: 0.7; fill: none }
.faint, .faint text { fill: #59636e }
.on { fill: #ffffff }
.pill { fill: #ffffff }
.mark { stroke: #c01c28; stroke-width: 2; fill: none }
.flag { fill: #c01c28 }
.cell { stroke-width: 5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.card { fill: #0d1117; stroke: #3d444d }
.band { fill: #161b22 }
.grid { stroke: #3d444d }
.edge { stroke: #7d8590 }
.faint, .faint text { fill: #9198a1 }
.on { fill: #ffffff }
.pill { fill: #0d1117 }
.mark { stroke: #ff8f85 }
.flag { fill: #ff8f85 }
}
"""


@dataclass(frozen=True, slots=True)
class Marks:
    """What a picture points at: a packed row, a column of the mask, a retrieval path."""

    row: int | None = None
    key: int | None = None
    path: int | None = None


NO_MARKS = Marks()


def svg_text(document: Mapping[str, Any], path: Path) -> str:
    """The SVG of what `derive --json` prints, for a file whose name ends in `.svg`.

    Raises `InputError` on another name, and on more than `MAX_ROWS` rows.
    """
    require_drawable(document["nodes"], path)
    svg = picture(document)
    # Behind the title, which comes first; a page that holds pictures has the style once.
    style = ElementTree.Element("style")
    style.text = STYLE
    svg.insert(1, style)
    ElementTree.indent(svg, space=" ")
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def require_drawable(rows: int, path: Path) -> None:
    """Raise `InputError` where a picture of so many rows cannot have this name, or not be drawn."""
    if path.suffix != ".svg":
        raise InputError(str(path), "", "a picture is SVG, and its name ends in .svg")
    if rows > MAX_ROWS:
        rule = f"{rows} rows are too many to draw; {MAX_ROWS} are the most"
        raise InputError(str(path), "", rule)


def picture(document: Mapping[str, Any], marks: Marks = NO_MARKS) -> ElementTree.Element:
    """The `svg` element, with groups of class `tree`, `mask` and `retrieval`; `STYLE` is apart."""
    page = Layout.of(document)
    svg = ElementTree.Element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        width=str(page.width),
        height=str(page.height),
        viewBox=f"0 0 {page.width} {page.height}",
    )
    name = shown_name(document)
    title = f"{name}: the tree, its attention mask and its retrieval rows"
    ElementTree.SubElement(svg, "title").text = title
    card = {"x": 0.5, "y": 0.5, "width": page.width - 1, "height": page.height - 1, "rx": 8}
    _add(svg, "rect", "card", **card)
    _text(svg, MARGIN, MARGIN + 14, name, 16).set("font-weight", "bold")
    _caption(svg, MARGIN, MARGIN + 36 + (len(page.head) - 1) * CAPTION_LINE, page.head)
    _tree(svg, document, page)
    _mask(svg, document, page)
    _retrieval(svg, document, page)
    if marks != NO_MARKS:
        _point(svg, document, page, marks)
    return svg


def shown_name(document: Mapping[str, Any]) -> str:
    """The name; a file's may hold what XML cannot, and what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in document["name"])


def headline(document: Mapping[str, Any]) -> list[str]:
    """What a tree was derived under, in a few words each."""
    rows, heads = document["nodes"], document["heads"]
    return [
        f"{rows} row{'s' if rows != 1 else ''}",
        f"TOPK {document['topk']}",
        f"{heads} head{'s' if heads != 1 else ''}",
        f"retrieval {document['retrieval_order']}",
        f"sentinel {document['sentinel']}",
    ]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything stands, in pixels.

    A packed row has a line of height `line`, the first with its top at `lines`; depths are `step`
    apart; a number takes `entry`. Retrieval rows stand in blocks, `deep` of them under one another.
    `head` and `caption`, which is the mask's, are lines of text.
    """

    rows: int
    line: int
    font: float
    entry: int
    step: int
    lines: int
    mask_x: int
    retrieval_y: int
    block: int
    deep: int
    head: tuple[str, ...]
    caption: tuple[str, ...]
    width: int
    height: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Layout:
        """The layout of one document."""
        rows, deepest = document["nodes"], max(document["position_ids"])
        paths, entries = len(document["retrieve_indices"]), len(document["retrieve_indices"][0])
        line = next(height for most, height in LINE_HEIGHTS if rows <= most)
        font = line * 0.5
        digits = max(len(str(rows - 1)), len(str(document["topk"] - 1)), 2)
        entry = round(digits * GLYPH * font + 8)
        # A chain is narrow at each depth, and its edges need less room than those of a fan.
        step = 2 * entry + (line if deepest > 8 else 48 if rows <= 32 else 96)
        tree = max(deepest * step + 2 * entry + line, _wide(CAPTIONS[0]) + line)
        mask_x = MARGIN + tree + entry
        caption = _fitted(CAPTIONS[1], " ", rows * line)
        mask = max(rows * line, _wide(caption))
        block = (entries + 1) * (entry + 2) + line
        inner = max(tree + entry + mask, _wide((document["name"],), 16), block, _wide(CAPTIONS[2]))
        words = headline(document)
        head = _fitted((" · ".join(words[:3]), " · ".join(words[3:])), " · ", inner)
        inner = max(inner, _wide(head))
        lines = MARGIN + 92 + (len(head) + len(caption) - 2) * CAPTION_LINE
        blocks = max(1, min(paths, (inner + line) // block))
        retrieval_y = lines + rows * line + 52
        height = retrieval_y + -(-paths // blocks) * line + MARGIN
        return cls(
            rows=rows,
            line=line,
            font=font,
            entry=entry,
            step=step,
            lines=lines,
            mask_x=mask_x,
            retrieval_y=retrieval_y,
            block=block,
            deep=-(-paths // blocks),
            head=head,
            caption=caption,
            width=inner + 2 * MARGIN,
            height=height,
        )

    def middle(self, row: int) -> float:
        """The y of a packed row's line."""
        return self.lines + (row + 0.5) * self.line


def _wide(lines: Sequence[str], size: float = CAPTION_FONT) -> int:
    return round(max(map(len, lines)) * GLYPH * size)


def _fitted(pieces: tuple[str, ...], between: str, room: int) -> tuple[str, ...]:
    """One line where there is room for it, or else each piece on its own."""
    whole = between.join(pieces)
    return (whole,) if _wide((whole,)) <= room else pieces


def _caption(parent: ElementTree.Element, x: int, last: int, lines: Sequence[str]) -> None:
    """Lines of faint text, the last of them at a height."""
    for above, words in enumerate(reversed(lines)):
        _text(parent, x, last - above * CAPTION_LINE, words, CAPTION_FONT, "faint")


def _tree(svg: ElementTree.Element, document: Mapping[str, Any], page: Layout) -> None:
    """Bands across tree and mask, edges, and a pill per node: packed row, then rank."""
    group = _group(svg, "tree")
    for row in range(1, page.rows, 2):
        x, y = MARGIN - 8, page.lines + row * page.line
        right = page.mask_x + page.rows * page.line
        _add(group, "rect", "band", x=x, y=y, width=right - x, height=page.line)
    _caption(group, MARGIN, page.lines - 30, CAPTIONS[0])
    depths, parents = document["position_ids"], document["parents"]
    lefts = [MARGIN + depth * page.step for depth in depths]
    for row in range(1, page.rows):
        start, end = lefts[parents[row]] + 2 * page.entry, lefts[row]
        bend, top, foot = (start + end) / 2, page.middle(parents[row]), page.middle(row)
        course = f"M{start} {top:g}C{bend:g} {top:g} {bend:g} {foot:g} {end} {foot:g}"
        _add(group, "path", "edge", d=course)
    for row, path in enumerate([[], *document["paths"]]):
        node = _group(group, "node")
        slot = document["tree_indices"][row]
        words = f"row {row}, path ({', '.join(map(str, path))}), slot {slot}, depth {depths[row]}"
        ElementTree.SubElement(node, "title").text = words
        _pill(node, row, path, lefts[row], page, DEPTHS[depths[row] % len(DEPTHS)])


def _pill(
    node: ElementTree.Element, row: int, path: Sequence[int], x: int, page: Layout, colour: str
) -> None:
    tall, wide, radius = page.line - 4, page.entry, (page.line - 4) / 2
    y, base = page.middle(row) - radius, page.middle(row) + page.font * 0.36
    outline: dict[str, Any] = {"x": x, "y": y, "width": 2 * wide, "height": tall, "rx": radius}
    if not path:
        _add(node, "rect", fill=colour, **outline)
        _text(node, x + wide, base, str(row), page.font, "on", "middle")
        return
    _add(node, "rect", "pill", stroke=colour, **outline)
    left = f"M{x + wide} {y:g}v{tall}h{radius - wide:g}a{radius:g} {radius:g} 0 0 1 0 {-tall}z"
    _add(node, "path", d=left, fill=colour)
    _text(node, x + wide / 2 + 1, base, str(row), page.font, "on", "middle")
    _text(node, x + wide * 1.5 - 1, base, str(path[-1]), page.font, "", "middle")


def _mask(svg: ElementTree.Element, document: Mapping[str, Any], page: Layout) -> None:
    """The mask, a cell per pair that is seen; rows beside it and above it."""
    group = _group(svg, "mask")
    _caption(group, page.mask_x, page.lines - 30, page.caption)
    small = max(page.font * 0.8, 9)
    labels = _group(group, "faint")
    for row in range(page.rows):
        base = page.middle(row) + small * 0.36
        _text(labels, page.mask_x - 6, base, str(row), small, "", "end")
        x = page.mask_x + (row + 0.5) * page.line
        _text(labels, x, page.lines - 6, str(row), small, "", "middle")
    size = page.line - 2
    depths = document["position_ids"]
    for row, cells in enumerate(document["attention_mask"]):
        for column, seen in enumerate(cells):
            if seen:
                x, y = page.mask_x + column * page.line + 1, page.lines + row * page.line + 1
                colour = DEPTHS[depths[column] % len(DEPTHS)]
                _add(group, "rect", "seen", x=x, y=y, width=size, height=size, rx=2, fill=colour)
    side = page.rows * page.line
    _add(group, "rect", "grid", x=page.mask_x, y=page.lines, width=side, height=side)


def _retrieval(svg: ElementTree.Element, document: Mapping[str, Any], page: Layout) -> None:
    """The retrieval rows, each behind its index and downwards first; padding is a point."""
    group = _group(svg, "retrieval")
    _caption(group, MARGIN, page.retrieval_y - 14, CAPTIONS[2])
    depths, entry, tall = document["position_ids"], page.entry, page.line - 4
    for index, rows in enumerate(document["retrieve_indices"]):
        x = MARGIN + index // page.deep * page.block
        y = page.retrieval_y + index % page.deep * page.line
        base = y + page.line / 2 + page.font * 0.36
        line = _group(group, "path")
        _text(line, x + entry - 4, base, str(index), page.font, "faint", "end")
        for place, row in enumerate(rows, 1):
            left = x + place * (entry + 2)
            middle = left + entry / 2
            if row < 0:
                _text(line, middle, base, "·", page.font, "faint", "middle")
                continue
            colour = DEPTHS[depths[row] % len(DEPTHS)]
            _add(line, "rect", x=left, y=y + 2, width=entry, height=tall, rx=3, fill=colour)
            _text(line, middle, base, str(row), page.font, "on", "middle")


def _point(
    svg: ElementTree.Element, document: Mapping[str, Any], page: Layout, marks: Marks
) -> None:
    """A frame around each thing that is marked, and a flag beside it: no colour speaks alone."""
    group = _group(svg, "marks")
    side, left = page.rows * page.line, MARGIN - 8
    if marks.row is not None:
        top = page.lines + marks.row * page.line
        wide = page.mask_x + side - left
        _add(group, "rect", "mark", x=left, y=top, width=wide, height=page.line, rx=4)
        _flag(group, left - 10, page.middle(marks.row), "right")
    if marks.key is not None:
        x = page.mask_x + marks.key * page.line
        _add(group, "rect", "mark", x=x, y=page.lines, width=page.line, height=side, rx=4)
        _flag(group, x + page.line / 2, page.lines - 22, "down")
    if marks.row is not None and marks.key is not None:
        x, y = page.mask_x + marks.key * page.line, page.lines + marks.row * page.line
        _add(group, "rect", "mark cell", x=x, y=y, width=page.line, height=page.line, rx=4)
    if marks.path is not None:
        x = MARGIN + marks.path // page.deep * page.block
        y = page.retrieval_y + marks.path % page.deep * page.line
        wide = (len(document["retrieve_indices"][0]) + 1) * (page.entry + 2) + 4
        _add(group, "rect", "mark", x=x, y=y, width=wide, height=page.line, rx=4)
        _flag(group, x - 10, y + page.line / 2, "right")


def _flag(parent: ElementTree.Element, x: float, y: float, towards: str) -> None:
    """A small triangle that points to the right or downwards."""
    shape = "v10l8 -5z" if towards == "right" else "h8l-4 6z"
    start = f"M{x:g} {y - 5:g}" if towards == "right" else f"M{x - 4:g} {y - 3:g}"
    _add(parent, "path", "flag", d=start + shape)


def _group(parent: ElementTree.Element, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, "g", {"class": name})


def _add(
    parent: ElementTree.Element, tag: str, name: str = "", **attributes: Any
) -> ElementTree.Element:
    given = {"class": name} if name else {}
    given |= {
        key: f"{value:g}" if isinstance(value, float) else str(value)
        for key, value in attributes.items()
    }
    return ElementTree.SubElement(parent, tag, given)


def _text(
    parent: ElementTree.Element,
    x: float,
    y: float,
    words: str,
    size: float,
    name: str = "",
    anchor: str = "start",
) -> ElementTree.Element:
    element = _add(parent, "text", name, x=float(x), y=float(y))
    element.set("font-size", f"{size:g}")
    if anchor != "start":
        element.set("text-anchor", anchor)
    element.text = words
    return element
