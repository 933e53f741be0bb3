"""Shrinking a finding's coordinate: ever smaller documents on which the same rule is broken.

It starts from the value itself, so that frozen coordinates shrink as drawn ones do, and what comes
out is a value and no seed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from medusa_conformance.folding import Cause
from medusa_conformance.runner import Located
from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import InputError
from medusa_spec.loading import coordinate_from

TRIALS = 60
"""Smaller coordinates that are tried for one cause; each is a line of an engine."""

ALL_TRIALS = 200
"""Those of a whole run: an engine that is wrong everywhere has dozens of causes."""

SECONDS = 30.0
"""After which no more are tried; only an engine that is slow to answer takes so long."""

SMALLER = "-shrunken"
"""What a smaller coordinate's name ends with."""

NAME_LIMIT = 80
"""Characters of a name (`coordinate.schema.json`)."""

BESIDE = ("search", "exactness", "training", "release", "cost", "claims")
"""What a coordinate has beside its rounds."""

LEAST: Mapping[str, int] = {
    **dict.fromkeys(("prefix", "layers", "published"), 1),
    **dict.fromkeys(("heads", "head_blocks"), 0),
    "vocabulary": 2,
}
"""Sizes of a workload that may be smaller alone, and the least of each."""

Document: TypeAlias = dict[str, Any]

Judge: TypeAlias = Callable[[Coordinate], Located | None]
"""Gives the first finding of one rule on a coordinate, `None` where it has none."""


def shrink_all(causes: Sequence[Cause], judge_for: Callable[[str], Judge]) -> list[Cause]:
    """Each cause on the smallest coordinate that was found for it, if a second run shows it again.

    `judge_for` gives the judge of one code.
    """
    left, deadline = ALL_TRIALS, time.monotonic() + SECONDS
    found = []
    for number, cause in enumerate(causes):
        judge = judge_for(cause.located.finding.code)
        again = judge(cause.located.coordinate)
        if again is None:
            found.append(replace(cause, reproduced=False))
            continue
        # What one cause does not need is left for those behind it.
        share = min(TRIALS, left // (len(causes) - number))
        best, used = shrink(again, judge, share, deadline)
        left -= used
        found.append(replace(cause, located=best, reproduced=True))
    return found


def shrink(located: Located, judge: Judge, trials: int, deadline: float) -> tuple[Located, int]:
    """The finding on the smallest coordinate that was found, and how many were tried."""
    best, used, progress = located, 0, True
    while progress:
        progress = False
        for smaller in STEPS:
            # Each kind of step as often as it helps: most of those that fail would fail again.
            helps = True
            while helps:
                helps = False
                for document in smaller(best.coordinate.document()):
                    if used >= trials or time.monotonic() > deadline:
                        return best, used
                    coordinate = lawful(document)
                    if coordinate is None:
                        continue
                    used += 1
                    found = judge(coordinate)
                    if found is not None:
                        best, helps, progress = found, True, True
                        break
    return best, used


def lawful(document: Mapping[str, Any]) -> Coordinate | None:
    """The coordinate of a document, `None` where it breaks a rule of its own.

    It is no manifest any more, so nothing is frozen of it, and its name says so.
    """
    name = document["name"]
    if not name.endswith(SMALLER):
        name = f"{name[: NAME_LIMIT - len(SMALLER)]}{SMALLER}"
    own = {key: value for key, value in document.items() if key != "expected"}
    try:
        return coordinate_from(own | {"name": name}, "shrinking")
    except InputError:
        return None


def _plainer(document: Document) -> Iterator[Document]:
    """Without what is prescribed besides a tree and a prefix."""
    for name in ("earlier", "posterior", "ranking", "branching", *BESIDE):
        if name in document:
            yield {key: value for key, value in document.items() if key != name}
    if len(document["rounds"]) > 1:
        yield document | {"rounds": document["rounds"][:1]}
    if any(planned is not None for planned in document["rounds"]):
        yield document | {"rounds": [None] * len(document["rounds"])}
    if document["end_of_sequence"] is not None:
        yield document | {"end_of_sequence": None}


def _fewer_paths(document: Document) -> Iterator[Document]:
    """One branch of the root alone, or moved up, fewer leaves, or all but one subtree."""
    paths = sorted(document["paths"], key=lambda p: (len(p), p))
    for branch in [path for path in paths if len(path) == 1]:
        kept = [path for path in paths if path[:1] == branch]
        if len(kept) < len(paths):
            yield _with_paths(document, kept)
    if len({path[0] for path in paths}) == 1:
        # One branch is left, and its top may not matter.
        yield _moved(document, {tuple(path): path[1:] for path in paths if len(path) > 1})
    inner = [path[:-1] for path in paths]
    leaves = [path for path in paths if path not in inner]
    for parts in (2, 4):
        share = len(leaves) // parts
        for start in range(0, share * parts, max(share, 1)):
            gone = leaves[start : start + share]
            if share > 1:
                yield _with_paths(document, [path for path in paths if path not in gone])
    for root in reversed(paths):
        yield _with_paths(document, [path for path in paths if path[: len(root)] != root])


def _with_paths(document: Document, paths: list[list[int]]) -> Document:
    return _moved(document, {tuple(path): path for path in paths})


def _lower_ranks(document: Document) -> Iterator[Document]:
    """The same tree with the ranks of siblings in a row from zero."""
    lower: dict[tuple[int, ...], list[int]] = {}
    children: Counter[tuple[int, ...]] = Counter()
    for path in sorted(map(tuple, document["paths"]), key=lambda p: (len(p), p)):
        lower[path] = [*lower.get(path[:-1], []), children[path[:-1]]]
        children[path[:-1]] += 1
    if any(list(path) != lowered for path, lowered in lower.items()):
        yield _moved(document, lower)


def _moved(document: Document, to: Mapping[tuple[int, ...], list[int]]) -> Document:
    """The document of a tree whose paths have gone or have others in their places."""
    places = {(): [], **to}
    rounds = [
        None
        if planned is None or tuple(planned["path"]) not in places
        else planned | {"path": places[tuple(planned["path"])]}
        for planned in document["rounds"]
    ]
    found = document | {"paths": list(to.values()), "rounds": rounds}
    found.pop("branching", None)
    if "posterior" in document:
        found["posterior"] = [
            row | {"path": places[tuple(row["path"])]}
            for row in document["posterior"]
            if tuple(row["path"]) in places
        ]
    return found


def _shorter_prefix(document: Document) -> Iterator[Document]:
    prefix = document["prefix"]
    for kept in sorted({1, len(prefix) // 2} - {0, len(prefix)}):
        yield document | {"prefix": prefix[:kept], "prefix_length": kept}


def _less_training(document: Document) -> Iterator[Document]:
    """One step, one sequence, or a shorter batch."""
    if "training" not in document:
        return
    training = document["training"]
    fewer = training["steps"] - 1
    if fewer:
        warm_up = min(training["warm_up"], fewer)
        yield document | {"training": training | {"steps": fewer, "warm_up": warm_up}}
    pairs = [*zip(training["tokens"], training["owned"], strict=True)]
    if len(pairs) > 1:
        for row in range(len(pairs)):
            yield _with_batch(document, pairs[:row] + pairs[row + 1 :])
    length = len(training["tokens"][0])
    for kept in sorted({length // 2, length - 1} - {0, length}):
        yield _with_batch(document, [(row[:kept], mask[:kept]) for row, mask in pairs])


def _with_batch(document: Document, pairs: list[tuple[list[int], list[bool]]]) -> Document:
    tokens, owned = map(list, zip(*pairs, strict=True))
    return document | {"training": document["training"] | {"tokens": tokens, "owned": owned}}


def _less_search(document: Document) -> Iterator[Document]:
    """Fewer paths, or fewer ranks of each head."""
    if "search" not in document:
        return
    search = document["search"]
    for name, least in (("nodes", 0), ("max_rank", 1)):
        most = search[name]
        for kept in sorted({most // 2, most - 1}):
            if least <= kept < most:
                yield document | {"search": search | {name: kept}}


def _less_cost(document: Document) -> Iterator[Document]:
    """A smaller tree, or a smaller size: each is in no other count's way."""
    if "cost" not in document:
        return
    cost = document["cost"]
    for leaf in sorted(cost["paths"], key=lambda path: (len(path), path), reverse=True):
        paths = [path for path in cost["paths"] if path[: len(leaf)] != leaf]
        depth = max(map(len, paths), default=0)
        fewer = {"paths": paths, "published": min(cost["published"], depth + 1), "profile": None}
        yield document | {"cost": cost | fewer}
    if cost["profile"] is not None:
        yield document | {"cost": cost | {"profile": None}}
    for name, least in LEAST.items():
        for kept in sorted({least, cost[name] // 2, cost[name] - 1}):
            if least <= kept < cost[name]:
                yield document | {"cost": cost | {name: kept}}


def _fewer_claims(document: Document) -> Iterator[Document]:
    """A figure less, of those that no other is computed of, or a policy less."""
    if "claims" not in document:
        return
    facts = document["claims"]
    read = {name for f in facts["figures"] for name in f["origin"].get("inputs", ())}
    for listed in ("figures", "policies"):
        for entry in facts[listed]:
            if entry.get("name") not in read:
                kept = [other for other in facts[listed] if other != entry]
                yield document | {"claims": facts | {listed: kept}}


def _less_exactness(document: Document) -> Iterator[Document]:
    """Fewer published tokens, fewer paths, or fewer heads than there are levels."""
    if "exactness" not in document:
        return
    given = document["exactness"]
    paths, drafts = given["paths"], given["drafts"]
    for length in range(1, given["length"]):
        yield document | {"exactness": given | {"length": length}}
    inner = [path[:-1] for path in paths]
    for leaf in [path for path in paths if path not in inner]:
        kept = [path for path in paths if path != leaf]
        yield document | {"exactness": given | {"paths": kept}}
    depth = max(map(len, paths), default=0)
    if depth < len(drafts):
        yield document | {"exactness": given | {"drafts": drafts[:depth]}}


def _narrower(document: Document) -> Iterator[Document]:
    """Fewer heads, fewer ranks, fewer layers."""
    depth = max([1, *map(len, document["paths"])])
    for heads in sorted({depth, document["heads"] - 1}):
        if depth <= heads < document["heads"]:
            yield _ranked(document | {"heads": heads})
    widest = max((rank for path in document["paths"] for rank in path), default=0) + 1
    if document["topk"] > widest:
        yield _ranked(document | {"topk": widest})
    if document["model"]["layers"] > 1:
        yield document | {"model": document["model"] | {"layers": 1}}


def _ranked(document: Document) -> Document:
    """The document with no more ranked tokens, accuracies and weights than it has room for."""
    if "search" in document:
        search = document["search"]
        rows, ranks = search["accuracy"][: document["heads"]], document["topk"]
        fewer = {"accuracy": rows, "max_rank": min(search["max_rank"], ranks)}
        document = document | {"search": search | fewer}
    if "training" in document:
        weights = document["training"]["head_weights"][: document["heads"]]
        document = document | {"training": document["training"] | {"head_weights": weights}}
    if "ranking" not in document:
        return document
    heads = [tokens[: document["topk"]] for tokens in document["ranking"]["heads"]]
    return document | {"ranking": document["ranking"] | {"heads": heads[: document["heads"]]}}


STEPS = (
    _plainer,
    _fewer_paths,
    _lower_ranks,
    _shorter_prefix,
    _less_search,
    _less_exactness,
    _less_training,
    _less_cost,
    _fewer_claims,
    _narrower,
)
"""Each gives documents that are smaller in one respect, the greatest steps first."""
