"""One cause, one finding: what follows from another rule's breach is folded under it.

The registry declares which rules can be broken by the breach of which others; no finding is looked
at for what it says. Of what fired, the rules come first that nothing else explains, and among those
the one that explains most.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medusa_spec.registry import CONTRACTS, invariants, sources_of

if TYPE_CHECKING:
    from medusa_conformance.runner import Located


@dataclass(frozen=True, slots=True)
class Cause:
    """A rule that is broken by nothing but itself: its least example, and what follows from it.

    `coordinates` counts those on which the rule is broken, `follows` the findings of each other
    rule that are folded under it, in registry order. `reproduced` says whether a second run showed
    it again, `None` where there was none.
    """

    located: Located
    coordinates: int
    follows: Mapping[str, int]
    reproduced: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Breach:
    """One rule broken on one coordinate: its earliest finding there, and how many there are."""

    code: str
    coordinate: str
    first: Located
    findings: int

    @property
    def contract(self) -> str:
        return invariants()[self.code].contract

    @property
    def time(self) -> tuple[int, int]:
        return self.first.generation, self.first.round


def fold(findings: Iterable[Located]) -> list[Cause]:
    """The causes of one engine's findings, the one that explains most first.

    The order of the findings decides nothing but which of two equal examples is shown.
    """
    order, left = list(invariants()), _breaches(findings)
    causes = []
    while left:
        everywhere = _by_place(left)
        folded = {
            code: [breach for breach in left if _explains(code, breach, everywhere)]
            for code in dict.fromkeys(breach.code for breach in left)
        }
        # Of rules that explain as much, the later clause is the narrower one.
        code = max(_unexplained(folded), key=lambda c: (len(folded[c]), order.index(c)))
        causes.append(_cause(code, folded[code]))
        done = set(folded[code])
        left = [breach for breach in left if breach not in done]
    return causes


def _breaches(findings: Iterable[Located]) -> list[_Breach]:
    # A coordinate is known by its document: drawn ones share a name, and travel as copies.
    documents: dict[int, str] = {}
    groups: dict[tuple[str, str], list[Located]] = {}
    for located in findings:
        coordinate = located.coordinate
        if id(coordinate) not in documents:
            documents[id(coordinate)] = json.dumps(coordinate.document(), sort_keys=True)
        key = located.finding.code, documents[id(coordinate)]
        groups.setdefault(key, []).append(located)
    return [
        _Breach(code, coordinate, min(group, key=lambda f: (f.generation, f.round)), len(group))
        for (code, coordinate), group in groups.items()
    ]


_Places = dict[tuple[str, str], _Breach]


def _by_place(breaches: Sequence[_Breach]) -> _Places:
    return {(breach.code, breach.coordinate): breach for breach in breaches}


def _explains(code: str, breach: _Breach, everywhere: _Places) -> bool:
    """Whether a breach can follow from that of `code`, of which there are some."""
    if code == breach.code:
        return True
    if code not in sources_of(breach.code):
        return False
    source, ours = invariants()[code].contract, breach.contract
    # Which of a contract's rules show depends on the tree; and a rule over whole generations
    # sees rounds that no trace holds.
    if source == ours or ours == "round":
        return True
    here = everywhere.get((code, breach.coordinate))
    if here is None:
        # A generation before this one has a tree of its own, which the rules of a tree never see.
        return breach.first.coordinate.earlier is not None and breach.first.generation == 0
    backwards = CONTRACTS.index(source) > CONTRACTS.index(ours)
    # What a round leaves behind is met by the next one; a whole generation has no such place.
    return not backwards or source == "round" or here.time < breach.time


def _unexplained(folded: Mapping[str, Sequence[_Breach]]) -> list[str]:
    """Codes none of whose breaches another code explains, unless each can follow from the other."""
    explained = {
        code
        for other, breaches in folded.items()
        for code in {breach.code for breach in breaches} - {other} - sources_of(other)
    }
    found = [code for code in folded if code not in explained]
    # A ring of declared rules has no beginning; then each of them may be the cause.
    return found or list(folded)


def _cause(code: str, folded: Sequence[_Breach]) -> Cause:
    own = [breach for breach in folded if breach.code == code]
    counted: Counter[str] = Counter()
    for breach in folded:
        if breach.code != code:
            counted[breach.code] += breach.findings
    follows = {other: counted[other] for other in invariants() if counted[other]}
    return Cause(min(own, key=_size).first, len(own), follows)


def _size(breach: _Breach) -> tuple[int, ...]:
    coordinate = breach.first.coordinate
    shape = coordinate.nodes, coordinate.heads, len(coordinate.prefix), len(coordinate.rounds)
    return *shape, breach.first.generation, breach.first.round
