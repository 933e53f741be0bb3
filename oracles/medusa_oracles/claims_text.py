"""The audit of a page: figures in its text that look measured, and do not say what they are.

It reads Markdown, or the lines of a terminal. What types a figure is told in `spec/claims.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_WRITTEN = "two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|sixty|a hundred"

KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("speedup", rf"(?<![\w.]){_NUMBER}\s?[x×](?!\w|\s?\d)"),
        ("speedup", rf"(?<!\w)(?<!\d\s)[x×]\s?{_NUMBER}\s(?:as\s)?(?:fast|slow|quick)\w*"),
        ("speedup", rf"(?<![\w.])(?:{_NUMBER}|{_WRITTEN})[ -]?fold\b"),
        ("speedup", rf"\b(?:an?|of)\s{_NUMBER}\sspeed-?ups?\b"),
        ("speedup", rf"\|\s*speed-?ups?\b[^|]*\|\s*{_NUMBER}"),
        ("speedup", rf"\bby\sa\sfactor\sof\s(?:{_NUMBER}|{_WRITTEN})"),
        (
            "speedup",
            rf"\b(?:{_NUMBER}|{_WRITTEN})[ -]times\sthe\s(?:speed|throughput|time|latency)\b",
        ),
        ("speedup", r"\b(?:twice|thrice|half)\sthe\s(?:speed|throughput|time|latency)\b"),
        (
            "speedup",
            r"\b(?:doubl|tripl|halv)(?:es?|ed|ing)\s(?:\w+\s)?(?:speed|throughput|time|latency)\b",
        ),
        # A code such as COST.SPEEDUP is no speedup.
        ("speedup", rf"(?<!\.)\bspeed-?ups?\s?(?:of|by|is|was|up to|between|[:=])?\s?{_NUMBER}"),
        ("speedup", rf"\bspeed-?ups?\s(?:reache[sd]|amounts\sto)\s{_NUMBER}"),
        ("speedup", rf"\b(?:{_NUMBER}|{_WRITTEN})[ -]times\s(?:as\s)?(?:fast|slow|quick|long)\w*"),
        ("speedup", r"\b(?:twice|thrice|half)\sas\s(?:fast|slow|long|quick)\w*"),
        ("speedup", r"\borders?\sof\smagnitude\s(?:fast|slow)er"),
        ("share", rf"(?<![\w.]){_NUMBER}\s?(?:%|per\s?cent\b)"),
        (
            "rate",
            rf"(?<![\w.]){_NUMBER}\s(?:\w+\s){{0,2}}(?:tokens?|tok|edges?|rounds?)\s?"
            r"(?:/|a\s|an\s|per\s|each\s|every\s)\s?(?:s\b|sec\b|round|second|step)",
        ),
        ("loss", rf"(?<![\w.]){_NUMBER}\snats\b"),
        (
            "time",
            rf"(?<![\w.]){_NUMBER}\s?(?:[mnµu]?s|[mnµu]?secs?|(?:milli|micro)?seconds?|min|minutes?|hours?)\b"
            rf"|\b(?:{_WRITTEN})\s(?:(?:milli)?seconds|minutes|hours)\b",
        ),
        ("size", rf"(?<![\w.]){_NUMBER}\s?[kKMGT]i?B\b"),
    )
)
"""What looks measured; the first that fits a place says what it is."""

WORDS = ("derived", "synthetic", "measured", "source-reported")

_NEGATED = re.compile(
    r"(?:\b(?:not|never|nor|neither|nobody|nothing|no one|none|cannot)|n['’]t)"
    # The nearest word is the one that is denied, as in "not measured but derived".
    rf"(?:\s[\w'-]+){{0,2}}?\s(?:{'|'.join(WORDS)})\b"
)
_TYPED = re.compile(rf"(?<![\w-])(?:{'|'.join(WORDS)})(?![\w-])")
_LIMIT = re.compile(
    r"\b(?:at most|limits?|time-?outs?|beyond|up to|allow|exceed|no more than|may (?:take|have))\b"
)
_LIMITED = ("time", "size")
"""Kinds of figures that may be no observation but a bound that somebody set."""

NEEDS: dict[str, dict[str, re.Pattern[str]]] = {
    "measured": {
        "machine": re.compile(r"\b(?:cores?|processors?|cpus?|gpus?|cards?|machine)\b"),
        "command": re.compile(r"`[^`]+`|^\s*\$ ", re.MULTILINE),
        "sample": re.compile(
            r"\b(?:once|twice|times|runs?|rounds?|prompts?|seeds?|repeats?|coordinates?|windows?"
            r"|median|tests?|mutants?|bytes|files?)\b"
        ),
    },
    "source-reported": {
        "source": re.compile(r"https?://|\]\(|\barxiv\b|\bpaper\b|\brelease\b|\blog\b|\bsource:"),
    },
}
"""What the section of a figure must hold besides, by the word that types it."""

_GIVEN = re.compile(r"\bgiven\b")
_EVERYTHING = re.compile(r"\bevery figure\b")
_QUOTED = re.compile(r"\bquoted outputs?\b")


class Untyped(NamedTuple):
    """A figure that does not say what it is: the line of its block, and what is missing."""

    line: int
    figure: str
    kind: str
    lacks: str


@dataclass(slots=True)
class Block:
    """Lines without an empty one between them, or a fenced block; under its headings."""

    line: int
    text: str
    fenced: bool
    section: int
    headings: tuple[str, ...]
    lead: str = field(default="")
    """The text of the block just before it in its section."""


def audit(text: str) -> list[Untyped]:
    """Every figure of a page that looks measured and is not typed, in the order of the page."""
    blocks = list(_blocks(text.splitlines()))
    everything = [b.text for b in blocks if not b.fenced and _EVERYTHING.search(b.text.lower())]
    quoted = [b.text for b in blocks if not b.fenced and _QUOTED.search(b.text.lower())]
    found = []
    for block in blocks:
        figures = [*_figures(block)]
        if not figures:
            continue
        section = [other.text for other in blocks if other.section == block.section]
        declared = [*everything, *(quoted if block.fenced else ())]
        lacks = _lacks(block, declared, "\n".join((*block.headings, *section)))
        found += [Untyped(block.line, figure, kind, lacks) for kind, figure in figures if lacks]
    return found


def _blocks(lines: Sequence[str]) -> Iterator[Block]:
    headings: list[str] = []
    gathered: list[str] = []
    start, section, lead, fence = 1, 0, "", ""

    def gather(fenced: bool) -> Block:
        block = Block(start, "\n".join(gathered), fenced, section, tuple(headings), lead)
        gathered.clear()
        return block

    for number, line in enumerate((*lines, ""), 1):
        opens = re.match(r"\s*(`{3,}|~{3,})", line)
        heading = None if fence else re.match(r"(#+) (.*)", line)
        if fence:
            if opens and line.strip().startswith(fence):
                block, fence = gather(fenced=True), ""
                yield block
                lead, start = block.text, number + 1
            else:
                gathered.append(line)
            continue
        if gathered and (opens or heading or not line.strip()):
            block = gather(fenced=False)
            yield block
            lead = block.text
        if opens:
            fence, start = opens[1], number + 1
        elif heading:
            del headings[len(heading[1]) - 1 :]
            headings += [""] * (len(heading[1]) - 1 - len(headings)) + [heading[2]]
            section, lead = section + 1, ""
            yield Block(number, heading[2], False, section, tuple(headings))
        elif line.strip():
            start = start if gathered else number
            gathered.append(line)
    if gathered:
        yield gather(fenced=True)


def _figures(block: Block) -> Iterator[tuple[str, str]]:
    """What looks measured in a block; an example that is executed derives its own figures."""
    if block.fenced and re.search(r"^\s*>>> ", block.text, re.MULTILINE):
        return
    text = re.sub(r"https?://\S+|\]\([^)]*\)", " ", block.text)
    for sentence in re.split(r"(?<=[.!?])\s+|\n(?=\s*[|-])", text):
        # As it is read: what is bold, or set as a formula, is the same figure.
        plain = re.sub(r"\s+", " ", re.sub(r"\*\*|\$(?=\d)", "", sentence))
        plain = re.sub(r"\s?\\times\b", "×", plain)
        taken: list[range] = []
        for kind, pattern in KINDS:
            if kind in _LIMITED and _LIMIT.search(plain.lower()):
                continue
            for match in pattern.finditer(plain):
                span = range(match.start(), match.end())
                if not any(span.start in other or other.start in span for other in taken):
                    taken.append(span)
                    yield kind, match[0]


def typed_as(text: str) -> frozenset[str]:
    """The words of evidence in a text, without those that are denied."""
    plain = re.sub(r"\s+", " ", text.lower())
    return frozenset(_TYPED.findall(_NEGATED.sub(" ", plain)))


def _lacks(block: Block, declared: Sequence[str], section: str) -> str:
    """What a block's figures lack; empty where they are typed, and what that needs is there."""
    nearest = [block.text, *reversed(block.headings), block.lead]
    for place in (*nearest, *declared):
        words = typed_as(place)
        if words:
            around = "\n".join((section, *declared)).lower()
            return _unmet(words, around)
    return f"one of the words {', '.join(WORDS)}"


def _unmet(words: frozenset[str], around: str) -> str:
    """What the first word needs that is not around; a figure has what one of its words needs."""
    unmet = []
    for word in sorted(words):
        lacking = [name for name, how in NEEDS.get(word, {}).items() if not how.search(around)]
        if not lacking:
            return ""
        unmet.append(f"the {' and the '.join(lacking)} of what is {word}")
    return unmet[0]


def untyped_numbers(schema: Mapping[str, Any]) -> list[str]:
    """Where the JSON Schema of a report has a number with a fraction that does not say what it is.

    A `description` on the way to it names one of the words, or `given`, of what is a setting.
    """
    return [*_untyped_numbers(schema, "")]


def _untyped_numbers(schema: Any, place: str) -> Iterator[str]:
    if isinstance(schema, list):
        for index, item in enumerate(schema):
            yield from _untyped_numbers(item, f"{place}[{index}]")
    elif isinstance(schema, dict):
        said = schema.get("description")
        if isinstance(said, str) and (typed_as(said) or _GIVEN.search(said.lower())):
            return
        kinds = schema.get("type", ())
        if "number" in ([kinds] if isinstance(kinds, str) else kinds):
            yield place
        for key, item in schema.items():
            yield from _untyped_numbers(item, f"{place}.{key}".lstrip("."))
