"""The sections of the article: what each is about, and why one of them has no clause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from medusa_spec.documents import parse_yaml, validate


@dataclass(frozen=True, slots=True)
class Section:
    """One section. Most clauses name theirs in the registry, and most mutants in the catalog.

    `codes` are the invariants that say what this one demands beside those; `files` do what no
    clause can. `reason` is set where no clause is owed.
    """

    id: str
    title: str
    kind: Literal["covered", "out-of-scope", "narrative"]
    reason: str = ""
    codes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def chapter(self) -> str:
        """The section that this one stands in, or itself: 0x04 of 0x04A."""
        return self.id[:4]


@cache
def sections() -> tuple[Section, ...]:
    """Every section of the article, in its order."""
    name = "sections.yaml"
    text = resources.files("medusa_spec").joinpath(name).read_text("utf-8")
    return sections_from(parse_yaml(text, name), name)


def sections_from(document: Any, source: str) -> tuple[Section, ...]:
    """The sections that a document lists; an `InputError` where it leaves its schema."""
    validate(document, "sections", source)
    return tuple(
        Section(**entry | {name: tuple(entry.get(name, ())) for name in ("codes", "files")})
        for entry in document
    )


def consecutive(listed: Sequence[Section]) -> list[str]:
    """The ids that do not follow the one before: 0x03B needs 0x03A, and 0x03 needs 0x02."""
    found, before = [], (-1, "")
    for section in listed:
        chapter, letter = int(section.chapter, 16), section.id[4:]
        after = chapter, chr(ord(before[1] or "@") + 1)
        # The list of references closes the article, whatever its last chapter is.
        begins = not letter and chapter in (before[0] + 1, 0xFF)
        if not begins and (chapter, letter) != (before[0], after[1]):
            found.append(section.id)
        before = chapter, letter
    return found
