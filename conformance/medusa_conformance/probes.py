"""Unlawful documents: one broken rule each, made from a lawful one (chapter `coordinate`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, TypeAlias

Document: TypeAlias = dict[str, Any]


def _unknown_field(document: Document) -> None:
    document["policy"]["epsilom"] = document["policy"]["epsilon"]


def _foreign_commit(document: Document) -> None:
    document["source"]["commit"] = "0" * 40


def _foreign_repository(document: Document) -> None:
    document["source"]["repository"] += "-fork"


def _stale_hash(document: Document) -> None:
    # The last file: a check of the first alone would pass.
    files = document["source"]["files"]
    name = list(files)[-1]
    files[name] = files[name][::-1]


def _mixed_variants(document: Document) -> None:
    # Only the label is exchanged, so that every hash stays the pinned one.
    source = document["source"]
    source["variant"] = "legacy" if source["variant"] == "current" else "current"


def _prefix_length_off_by_one(document: Document) -> None:
    document["prefix_length"] += 1


def _repeated_path(document: Document) -> None:
    document["paths"].append(list(document["paths"][-1]))
    document["capacity"] += 1


def _missing_ancestor(document: Document) -> None:
    deepest = max(document["paths"], key=len)
    document["paths"].remove(deepest[:-1])


def _rank_at_topk(document: Document) -> None:
    document["paths"].append([document["topk"]])
    document["capacity"] += 1


def _rank_at_topk_below(document: Document) -> None:
    document["paths"].append([document["paths"][0][0], document["topk"]])
    document["capacity"] += 1


def _negative_rank(document: Document) -> None:
    document["paths"].append([-1])
    document["capacity"] += 1


def _deeper_than_heads(document: Document) -> None:
    path: list[int] = max(document["paths"], key=len, default=[])
    while len(path) <= document["heads"]:
        path = [*path, 0]
        if path not in document["paths"]:
            document["paths"].append(path)
            document["capacity"] += 1


def _capacity_short_by_one(document: Document) -> None:
    document["capacity"] = len(document["prefix"]) + len(document["paths"])


def _token_outside_vocabulary(document: Document) -> None:
    document["prefix"][-1] = document["model"]["vocabulary"]


def _first_token_outside_vocabulary(document: Document) -> None:
    document["prefix"][0] = document["model"]["vocabulary"]


def _topk_above_vocabulary(document: Document) -> None:
    document["topk"] = document["model"]["vocabulary"] + 1


def _ranked_token_outside_vocabulary(document: Document) -> None:
    document["ranking"]["heads"][-1][-1] = document["model"]["vocabulary"]


def _ranked_token_repeated(document: Document) -> None:
    ranked = document["ranking"]["heads"][-1]
    ranked[-1] = ranked[0]


def _root_outside_vocabulary(document: Document) -> None:
    document["ranking"]["root"] = document["model"]["vocabulary"]


def _earlier_missing_ancestor(document: Document) -> None:
    _missing_ancestor(document["earlier"])


def _earlier_token_outside_vocabulary(document: Document) -> None:
    document["earlier"]["prefix"][0] = document["model"]["vocabulary"]


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


def _ranks_heads(document: Document) -> bool:
    return bool(document.get("ranking", {"heads": []})["heads"])


def _ranks_several(document: Document) -> bool:
    return _ranks_heads(document) and document["topk"] > 1


def _has_earlier(document: Document) -> bool:
    return "earlier" in document


def _has_deep_earlier(document: Document) -> bool:
    return _has_earlier(document) and _has_depth_two(document["earlier"])


def _names_a_variant(document: Document) -> bool:
    variant_files = ("medusa_model.py", "_legacy.py")
    return any(name.endswith(variant_files) for name in document["source"]["files"])


def _always(_: Document) -> bool:
    return True


PROBES: tuple[tuple[Callable[[Document], None], Callable[[Document], bool]], ...] = (
    (_unknown_field, _always),
    (_foreign_commit, _always),
    (_foreign_repository, _always),
    (_stale_hash, _always),
    (_mixed_variants, _names_a_variant),
    (_prefix_length_off_by_one, _always),
    (_repeated_path, _has_paths),
    (_missing_ancestor, _has_depth_two),
    (_rank_at_topk, _always),
    (_rank_at_topk_below, _may_have_depth_two),
    (_negative_rank, _always),
    (_deeper_than_heads, _always),
    (_capacity_short_by_one, _always),
    (_token_outside_vocabulary, _always),
    (_first_token_outside_vocabulary, _always),
    (_topk_above_vocabulary, _always),
    (_ranked_token_outside_vocabulary, _ranks_heads),
    (_ranked_token_repeated, _ranks_several),
    (_root_outside_vocabulary, _ranks_heads),
    (_earlier_missing_ancestor, _has_deep_earlier),
    (_earlier_token_outside_vocabulary, _has_earlier),
    (_earlier_capacity_short_by_one, _has_earlier),
)
"""How a document is broken, and which documents can be."""


def unlawful_documents(document: Document) -> Iterator[Document]:
    """Each probe that fits, applied to its own copy."""
    for corrupt, fits in PROBES:
        if fits(document):
            broken = deepcopy(document)
            corrupt(broken)
            yield broken
