"""Unlawful documents: one broken rule each, made from a lawful one (chapter `coordinate`).

What can be broken anywhere in a list is broken at its first place, in its middle or at its last, as
the seed of the document says: over a few coordinates, a check of some of the places does not pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

Document: TypeAlias = dict[str, Any]

Place: TypeAlias = Literal["first", "middle", "last"]
PLACES: tuple[Place, ...] = ("first", "middle", "last")

TreeOf: TypeAlias = Callable[[Document], Document]
"""The part of a document that holds a prefix and paths."""


def _index(place: Place, count: int) -> int:
    """Which of so many entries, counted from 0."""
    return {"first": 0, "middle": count // 2, "last": count - 1}[place]


class Probe(NamedTuple):
    """How a document is broken, and which documents can be."""

    name: str
    corrupt: Callable[[Document, Place], None]
    fits: Callable[[Document], bool]


def _own(document: Document) -> Document:
    return document


def _earlier(document: Document) -> Document:
    earlier: Document = document["earlier"]
    return earlier


def _unknown_field(document: Document, part: str) -> None:
    of = document if part == "document" else document[part]
    of["epsilom"] = 0.09


def _missing_field(document: Document) -> None:
    del document["policy"]["alpha"]


def _foreign_commit(document: Document) -> None:
    document["source"]["commit"] = "0" * 40


def _foreign_repository(document: Document) -> None:
    document["source"]["repository"] += "-fork"


def _stale_hash(document: Document, place: Place) -> None:
    files = document["source"]["files"]
    name = list(files)[_index(place, len(files))]
    files[name] = files[name][::-1]


def _unpinned_file(document: Document) -> None:
    files = document["source"]["files"]
    files["medusa/model/unpinned.py"] = next(iter(files.values()))


def _mixed_variants(document: Document) -> None:
    # Only the label is exchanged, so that every hash stays the pinned one.
    source = document["source"]
    source["variant"] = "legacy" if source["variant"] == "current" else "current"


def _prefix_length_off_by_one(document: Document) -> None:
    document["prefix_length"] += 1


def _grow(document: Document, tree: Document, index: int, *paths: list[int]) -> None:
    """More paths from an index of the list on, and room for them: only the paths are unlawful."""
    tree["paths"][index:index] = paths
    document["capacity"] += len(paths)


def _insert(document: Document, tree: Document, place: Place, *paths: list[int]) -> None:
    _grow(document, tree, _index(place, len(tree["paths"]) + 1), *paths)


def _repeated_path(document: Document, place: Place, of: TreeOf) -> None:
    # Behind all others: next to each other stand only the last path and its copy.
    tree = of(document)
    paths = tree["paths"]
    _grow(document, tree, len(paths), list(paths[_index(place, len(paths))]))


def _missing_ancestor(document: Document, place: Place, of: TreeOf) -> None:
    paths = of(document)["paths"]
    deepest = max(paths, key=len)
    paths.remove(deepest[: 1 + _index(place, len(deepest) - 1)])


def _orphan(document: Document, place: Place, of: TreeOf) -> None:
    # The deepest path keeps its ancestors.
    tree = of(document)
    _insert(document, tree, place, [*_free_child(document, tree), 0])


def _free_child(document: Document, tree: Document) -> list[int]:
    """The first lawful path that the tree lacks with room below it; empty where there is none."""
    paths = [[], *tree["paths"]]
    above = (path for path in paths if len(path) + 2 <= document["heads"])
    children = ([*path, rank] for path in above for rank in range(document["topk"]))
    return next((child for child in children if child not in paths), [])


def _odd_rank(document: Document, place: Place, of: TreeOf, above_topk: bool) -> None:
    _insert(document, of(document), place, [document["topk"] if above_topk else -1])


def _odd_rank_below(document: Document, place: Place, of: TreeOf, above_topk: bool) -> None:
    tree = of(document)
    paths = tree["paths"]
    parent = paths[_index(place, len(paths))][: document["heads"] - 1]
    _grow(document, tree, len(paths), [*parent, document["topk"] if above_topk else -1])


def _deeper_than_heads(document: Document, place: Place, of: TreeOf) -> None:
    tree = of(document)
    path: list[int] = max(tree["paths"], key=len, default=[])
    chain: list[list[int]] = []
    while len(path) <= document["heads"]:
        path = [*path, 0]
        chain.append(path)
    _insert(document, tree, place, *chain)


def _capacity_short_by_one(document: Document) -> None:
    document["capacity"] = len(document["prefix"]) + len(document["paths"])


def _token_outside_vocabulary(document: Document, place: Place, of: TreeOf) -> None:
    prefix = of(document)["prefix"]
    prefix[_index(place, len(prefix))] = document["model"]["vocabulary"]


def _negative_token(document: Document, place: Place, of: TreeOf) -> None:
    prefix = of(document)["prefix"]
    prefix[_index(place, len(prefix))] = -1


def _topk_above_vocabulary(document: Document) -> None:
    document["topk"] = document["model"]["vocabulary"] + 1


def _ranked_token_outside_vocabulary(document: Document, place: Place) -> None:
    ranked = document["ranking"]["heads"]
    tokens = ranked[_index(place, len(ranked))]
    tokens[_index(place, len(tokens))] = document["model"]["vocabulary"]


def _ranked_token_repeated(document: Document, place: Place) -> None:
    ranked = document["ranking"]["heads"]
    tokens = ranked[_index(place, len(ranked))]
    tokens[-1] = tokens[0]


def _ranking_short_of_a_token(document: Document, place: Place) -> None:
    ranked = document["ranking"]["heads"]
    ranked[_index(place, len(ranked))].pop()


def _ranking_short_of_a_head(document: Document) -> None:
    document["ranking"]["heads"].pop()


def _root_outside_vocabulary(document: Document) -> None:
    document["ranking"]["root"] = document["model"]["vocabulary"]


def _earlier_capacity_short_by_one(document: Document) -> None:
    earlier = document["earlier"]
    surplus = document["capacity"] - len(earlier["prefix"]) - len(earlier["paths"])
    earlier["prefix"] += [0] * surplus


def _has_depth_two(document: Document) -> bool:
    return any(len(path) > 1 for path in document["paths"])


def _has_paths(document: Document) -> bool:
    return bool(document["paths"])


def _may_have_depth_two(document: Document) -> bool:
    return bool(document["paths"]) and document["heads"] > 1


def _has_room_for_an_orphan(document: Document) -> bool:
    return bool(_free_child(document, document))


def _ranks_heads(document: Document) -> bool:
    return bool(document.get("ranking", {"heads": []})["heads"])


def _ranks_several(document: Document) -> bool:
    return _ranks_heads(document) and document["topk"] > 1


def _has_earlier(document: Document) -> bool:
    return "earlier" in document


def _has_earlier_paths(document: Document) -> bool:
    return _has_earlier(document) and _has_paths(document["earlier"])


def _has_deep_earlier(document: Document) -> bool:
    return _has_earlier(document) and _has_depth_two(document["earlier"])


def _has_room_for_an_earlier_orphan(document: Document) -> bool:
    return _has_earlier(document) and bool(_free_child(document, document["earlier"]))


def _names_a_variant(document: Document) -> bool:
    variant_files = ("medusa_model.py", "_legacy.py")
    return any(name.endswith(variant_files) for name in document["source"]["files"])


def _always(_: Document) -> bool:
    return True


def _anywhere(corrupt: Callable[..., None], fits: Callable[[Document], bool], **more: Any) -> Probe:
    words = [corrupt.__name__]
    if more.get("of") is _earlier:
        words.append("earlier")
    if "above_topk" in more:
        words.append("topk" if more["above_topk"] else "negative")
    name = "_".join(word.strip("_") for word in words)
    return Probe(name, partial(corrupt, **more), fits)


def _once(
    corrupt: Callable[..., None], fits: Callable[[Document], bool], name: str = "", **more: Any
) -> Probe:
    """Of what stands in one place."""
    words = name or corrupt.__name__.strip("_")
    return Probe(words, lambda document, _: corrupt(document, **more), fits)


_PARTS = ("document", "source", "policy", "model")
PROBES: tuple[Probe, ...] = (
    *(_once(_unknown_field, _always, f"unknown_field_{part}", part=part) for part in _PARTS),
    _once(_missing_field, _always),
    _once(_foreign_commit, _always),
    _once(_foreign_repository, _always),
    _anywhere(_stale_hash, _always),
    _once(_unpinned_file, _always),
    _once(_mixed_variants, _names_a_variant),
    _once(_prefix_length_off_by_one, _always),
    _anywhere(_repeated_path, _has_paths, of=_own),
    _anywhere(_missing_ancestor, _has_depth_two, of=_own),
    _anywhere(_orphan, _has_room_for_an_orphan, of=_own),
    _anywhere(_odd_rank, _always, of=_own, above_topk=True),
    _anywhere(_odd_rank, _always, of=_own, above_topk=False),
    _anywhere(_odd_rank_below, _may_have_depth_two, of=_own, above_topk=True),
    _anywhere(_odd_rank_below, _may_have_depth_two, of=_own, above_topk=False),
    _anywhere(_deeper_than_heads, _always, of=_own),
    _once(_capacity_short_by_one, _always),
    _anywhere(_token_outside_vocabulary, _always, of=_own),
    _anywhere(_negative_token, _always, of=_own),
    _once(_topk_above_vocabulary, _always),
    _anywhere(_ranked_token_outside_vocabulary, _ranks_heads),
    _anywhere(_ranked_token_repeated, _ranks_several),
    _anywhere(_ranking_short_of_a_token, _ranks_several),
    _once(_ranking_short_of_a_head, _ranks_heads),
    _once(_root_outside_vocabulary, _ranks_heads),
    _anywhere(_repeated_path, _has_earlier_paths, of=_earlier),
    _anywhere(_missing_ancestor, _has_deep_earlier, of=_earlier),
    _anywhere(_orphan, _has_room_for_an_earlier_orphan, of=_earlier),
    _anywhere(_odd_rank, _has_earlier, of=_earlier, above_topk=True),
    _anywhere(_odd_rank, _has_earlier, of=_earlier, above_topk=False),
    _anywhere(_deeper_than_heads, _has_earlier, of=_earlier),
    _anywhere(_token_outside_vocabulary, _has_earlier, of=_earlier),
    _once(_earlier_capacity_short_by_one, _has_earlier),
)


def unlawful_documents(document: Document) -> Iterator[Document]:
    """Each probe that fits, applied to a copy of its own."""
    place = PLACES[document["policy"]["seed"] % len(PLACES)]
    text = json.dumps(document)
    for probe in PROBES:
        if probe.fits(document):
            # A document is JSON, which is copied faster as text than object by object.
            broken = json.loads(text)
            probe.corrupt(broken, place)
            yield broken
