"""Shrinking a finding's coordinate: ever smaller documents on which the same rule is broken.

It starts from the value itself, so that frozen coordinates shrink as drawn ones do, and what comes
out is a value and no seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from medusa_conformance.folding import Cause
from medusa_conformance.runner import Located
from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import InputError
from medusa_spec.loading import coordinate_from

TRIALS = 40
"""Smaller coordinates that are tried for one cause; each is a whole line of an engine."""

Document = dict[str, Any]


def shrink(cause: Cause, judge: Callable[[Coordinate], Located | None]) -> Cause:
    """The cause on the smallest coordinate that was found.

    `judge` gives the first finding of the cause's code on a coordinate, `None` where it has none.
    """
    best, trials = cause.located, TRIALS
    progress = True
    while progress and trials > 0:
        progress = False
        for document in smaller(best.coordinate.document()):
            if trials <= 0:
                break
            coordinate = lawful(document)
            if coordinate is None:
                continue
            trials -= 1
            found = judge(coordinate)
            if found is not None:
                best, progress = found, True
                break
    return replace(cause, located=best)


def lawful(document: Mapping[str, Any]) -> Coordinate | None:
    """The coordinate of a document, `None` where it breaks a rule of its own."""
    try:
        return coordinate_from(document, "shrinking")
    except InputError:
        return None


def smaller(document: Document) -> Iterator[Document]:
    """Documents that are smaller in one respect, the greatest steps first."""
    document = {name: value for name, value in document.items() if name != "expected"}
    for name in ("earlier", "posterior", "ranking", "branching"):
        if name in document:
            yield {key: value for key, value in document.items() if key != name}
    if len(document["rounds"]) > 1:
        yield document | {"rounds": document["rounds"][:1]}
    if document["rounds"] != [None]:
        yield document | {"rounds": [None] * len(document["rounds"])}
    if document["end_of_sequence"] is not None:
        yield document | {"end_of_sequence": None}
    yield from _fewer_paths(document)
    prefix = document["prefix"]
    for kept in {1, len(prefix) // 2} - {0, len(prefix)}:
        yield document | {"prefix": prefix[:kept], "prefix_length": kept}
    yield from _narrower(document)


def _fewer_paths(document: Document) -> Iterator[Document]:
    paths = document["paths"]
    # All but one branch of the root, then subtree by subtree, from the last to the first.
    for path in sorted(paths, key=lambda p: (len(p), p)):
        kept = [p for p in paths if p[: len(path)] == path or path[: len(p)] == p]
        if len(path) == 1 and len(kept) < len(paths):
            yield _with_paths(document, kept)
    for path in sorted(paths, key=lambda p: (len(p), p), reverse=True):
        yield _with_paths(document, [p for p in paths if p[: len(path)] != path])


def _with_paths(document: Document, paths: list[list[int]]) -> Document:
    kept = {tuple(path) for path in paths}
    rounds = [
        None if planned is not None and tuple(planned["path"]) not in kept else planned
        for planned in document["rounds"]
    ]
    found = document | {"paths": paths, "rounds": rounds}
    found.pop("branching", None)
    return found


def _narrower(document: Document) -> Iterator[Document]:
    deepest = max(map(len, document["paths"]), default=0)
    if document["heads"] > max(deepest, 1):
        fewer = document | {"heads": max(deepest, 1)}
        fewer.pop("ranking", None)
        yield fewer
    widest = max((rank for path in document["paths"] for rank in path), default=0) + 1
    if document["topk"] > widest:
        yield document | {"topk": widest}
    if document["model"]["layers"] > 1:
        yield document | {"model": document["model"] | {"layers": 1}}
