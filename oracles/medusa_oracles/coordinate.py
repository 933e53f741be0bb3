"""Oracle of `spec/coordinate.md`: which rules a document breaks, and what an engine made of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from medusa_oracles.judge import oracle
from medusa_spec.arrays import IntArray
from medusa_spec.coordinate import Coordinate, RowCoordinates, canonical_order
from medusa_spec.documents import schema_errors
from medusa_spec.findings import Finding
from medusa_spec.loading import source_pin
from medusa_spec.trace import Trace

ABSENT = np.iinfo(np.int64).min
"""Fills a rank table behind the end of a path; no document may hold a rank as small."""


def derive_violations(document: Mapping[str, Any]) -> frozenset[str]:
    """Every code of this chapter that a document breaks, clauses C1 to C8 and C11.

    Nothing but the schema is asked of a document that leaves its schema; an incomplete policy
    (C10) leaves it.
    """
    if schema_errors(document, "coordinate"):
        return frozenset({"COORDINATE.SCHEMA"})
    earlier = document.get("earlier")
    trees = [document] if earlier is None else [document, earlier]
    broken: set[str] = set()
    for tree in trees:
        broken |= set(_tree_violations(tree["paths"], document["topk"], document["heads"]))
        if len(tree["prefix"]) + len(tree["paths"]) + 1 > document["capacity"]:
            broken.add("COORDINATE.CAPACITY")
    if document["prefix_length"] != len(document["prefix"]):
        broken.add("COORDINATE.PREFIX_LENGTH")
    if not _is_pinned(document["source"], source_pin()):
        broken.add("COORDINATE.SOURCE_PIN")
    if not _tokens_fit(document, trees):
        broken.add("COORDINATE.TOKEN_DOMAIN")
    return frozenset(broken)


def _rank_table(paths: list[list[int]]) -> IntArray:
    width = max(map(len, paths), default=1)
    table = np.full((len(paths), width), ABSENT, np.int64)
    for row, path in enumerate(paths):
        table[row, : len(path)] = path
    return table


def _tree_violations(paths: list[list[int]], topk: int, heads: int) -> Iterator[str]:
    lengths = np.array([len(path) for path in paths], np.int64)
    if (lengths > heads).any():
        yield "COORDINATE.DEPTH_WITHIN_HEADS"
    ranks = np.array([rank for path in paths for rank in path], np.int64)
    if ((ranks < 0) | (ranks >= topk)).any():
        yield "COORDINATE.RANK_BELOW_TOPK"
    table = _rank_table(paths)
    distinct = np.unique(table, axis=0)
    if len(distinct) < len(table):
        yield "COORDINATE.PATHS_DISTINCT"
    deep = lengths > 1
    ancestors = table[deep]
    ancestors[np.arange(len(ancestors)), lengths[deep] - 1] = ABSENT
    if len(np.unique(np.concatenate([distinct, ancestors]), axis=0)) > len(distinct):
        yield "COORDINATE.PREFIX_CLOSED"


def _is_pinned(source: Mapping[str, Any], pin: Mapping[str, Any]) -> bool:
    other = {"current": "_legacy.py", "legacy": "medusa_model.py"}[source["variant"]]
    return (
        (source["repository"], source["commit"]) == (pin["repository"], pin["commit"])
        and source["files"].items() <= pin["files"].items()
        and not any(name.endswith(other) for name in source["files"])
    )


def _tokens_fit(document: Mapping[str, Any], trees: list[Mapping[str, Any]]) -> bool:
    topk, ranking = document["topk"], document.get("ranking")
    tokens = [token for tree in trees for token in tree["prefix"]]
    if ranking is not None:
        tokens += [ranking["root"], *(t for ranked in ranking["heads"] for t in ranked)]
        if len(ranking["heads"]) != document["heads"]:
            return False
        if any(len(r) != topk or len({*r}) != topk for r in ranking["heads"]):
            return False
    vocabulary = document["model"]["vocabulary"]
    return topk <= vocabulary and all(0 <= token < vocabulary for token in tokens)


def derive_rows(coordinate: Coordinate) -> list[RowCoordinates]:
    """Clause C9: every packed row in each of its domains, each by its own formula (0x01B)."""
    rows = []
    for row, path in enumerate(((), *canonical_order(coordinate.paths))):
        depth = len(path)
        rank, head = (path[-1], depth - 1) if path else (None, None)
        slot = 0 if rank is None else 1 + (depth - 1) * coordinate.topk + rank
        position = coordinate.prefix_length + depth
        cache_row = coordinate.prefix_length + row
        rows.append(
            RowCoordinates(row, rank, head, slot, depth, position, cache_row)  # type: ignore[arg-type]
        )
    return rows


# A dozen oracles ask the same of one trace, and validating its document takes milliseconds.
_last: tuple[Trace, frozenset[str]] | None = None


def _broken(trace: Trace) -> frozenset[str]:
    global _last
    if _last is None or _last[0] is not trace:
        # As it would be read from a file: a tuple is a list there.
        document = json.loads(json.dumps(trace["coordinate.given"]))
        _last = trace, derive_violations(document)
    return _last[1]


def _breaks(code: str) -> Callable[[Trace], bool]:
    return lambda trace: code in _broken(trace)


def _lawful(trace: Trace) -> bool:
    return not _broken(trace)


_SEEN = ("coordinate.given", "coordinate.refused")


def _must_refuse(code: str, what: str) -> None:
    """Register the oracle of a rule that a document breaks: the engine must have refused it."""

    def check(trace: Trace) -> Iterator[Finding]:
        if trace["coordinate.refused"] is None:
            yield Finding(code, f"{what} was admitted", {}, "a refusal", "admission")

    oracle(code, *_SEEN, applies=_breaks(code))(check)


_must_refuse("COORDINATE.SCHEMA", "a document outside its schema")
_must_refuse("COORDINATE.PATHS_DISTINCT", "a path that occurs twice")
_must_refuse("COORDINATE.PREFIX_CLOSED", "a path without its ancestor")
_must_refuse("COORDINATE.RANK_BELOW_TOPK", "a rank outside [0, TOPK)")
_must_refuse("COORDINATE.DEPTH_WITHIN_HEADS", "a path deeper than there are heads")
_must_refuse("COORDINATE.CAPACITY", "a round that does not fit the cache")
_must_refuse("COORDINATE.TOKEN_DOMAIN", "a token outside the vocabulary")


def _breaks_or_shows(code: str, *shown: str) -> Callable[[Trace], bool]:
    """A document that breaks the rule, or a lawful one whose admission shows what became of it."""
    broken = _breaks(code)
    return lambda trace: broken(trace) or (_lawful(trace) and trace.has(*shown))


@oracle(
    "COORDINATE.SOURCE_PIN",
    *_SEEN,
    applies=_breaks_or_shows("COORDINATE.SOURCE_PIN", "coordinate.admitted"),
)
def source_pin_kept(trace: Trace) -> Iterator[Finding]:
    """Clause C2: an unpinned source is refused, a pinned one admitted as it is."""
    code = "COORDINATE.SOURCE_PIN"
    if trace["coordinate.refused"] is not None:
        return
    if not _lawful(trace):
        message = "a source that is not the pin was admitted"
        yield Finding(code, message, {}, "a refusal", "admission")
    else:
        yield from _same_field(code, "source", trace)


@oracle(
    "COORDINATE.PREFIX_LENGTH",
    *_SEEN,
    applies=_breaks_or_shows("COORDINATE.PREFIX_LENGTH", "coordinate.admitted", "coordinate.rows"),
)
def prefix_length(trace: Trace) -> Iterator[Finding]:
    """Clause C3."""
    code = "COORDINATE.PREFIX_LENGTH"
    if trace["coordinate.refused"] is not None:
        return
    if not _lawful(trace):
        message = "a length that is not the prefix's was admitted"
        yield Finding(code, message, {}, "a refusal", "admission")
        return
    tokens = len(trace["coordinate.given"]["prefix"])
    observed = trace["coordinate.admitted"].get("prefix_length", "absent")
    root = next((row.get("position") for row in trace["coordinate.rows"]), "absent")
    if observed != tokens:
        yield Finding(code, "the admitted prefix has another length", {}, tokens, observed)
    elif root != tokens:
        yield Finding(code, "the root is not at position P", {"row": 0}, tokens, root)


@oracle("COORDINATE.DOMAINS", *_SEEN, "coordinate.rows", applies=_lawful)
def domains(trace: Trace) -> Iterator[Finding]:
    """Clause C9."""
    expected, rows = derive_rows(trace.coordinate), trace["coordinate.rows"]
    if len(expected) != len(rows):
        message = "the number of rows differs"
        yield Finding("COORDINATE.DOMAINS", message, {}, len(expected), len(rows))
        return
    for row, (ours, theirs) in enumerate(zip(expected, rows, strict=True)):
        for name in RowCoordinates.__slots__:
            value, observed = getattr(ours, name), theirs.get(name, "absent")
            if value != observed:
                filled = [n for n in RowCoordinates.__slots__ if theirs.get(n) == observed != value]
                alias = f"; {' and '.join(filled)} hold {observed}" if len(filled) > 1 else ""
                message = f"the {name} of a row is not its own{alias}"
                yield Finding("COORDINATE.DOMAINS", message, {"row": row}, value, observed)
                return


@oracle("COORDINATE.POLICY_COMPLETE", *_SEEN, "coordinate.admitted", applies=_lawful)
def policy_complete(trace: Trace) -> Iterator[Finding]:
    """Clause C10."""
    if trace["coordinate.refused"] is None:
        yield from _same_field("COORDINATE.POLICY_COMPLETE", "policy", trace)


@oracle("COORDINATE.LAWFUL_ADMITTED", *_SEEN, applies=_lawful)
def lawful_admitted(trace: Trace) -> Iterator[Finding]:
    """Clause C12."""
    refusal = trace["coordinate.refused"]
    if refusal is not None:
        message = "a coordinate that breaks no rule was refused"
        yield Finding("COORDINATE.LAWFUL_ADMITTED", message, {}, "admission", refusal)


def _same_field(code: str, name: str, trace: Trace) -> Iterator[Finding]:
    given, admitted = trace["coordinate.given"][name], trace["coordinate.admitted"].get(name, {})
    for key in given:
        if key not in admitted or given[key] != admitted[key]:
            observed = admitted.get(key, "absent")
            message = f"{name}.{key} is not the one written"
            yield Finding(code, message, {}, given[key], observed)
            return
