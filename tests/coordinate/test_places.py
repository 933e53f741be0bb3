"""Admission that looks at some places of a list alone admits what is broken at another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from medusa_conformance.probes import PLACES
from medusa_conformance.runner import Setting, judge_coordinates
from medusa_manifests import load
from medusa_reference_engine import ReferenceEngine, Stages
from medusa_reference_engine.coordinate import AdmissionStage
from medusa_spec import Coordinate
from medusa_spec.errors import Refused

SETTING = Setting("cpu", "float64", ("coordinate",))


def failed(stage: type[AdmissionStage], *names: str) -> set[str]:
    """The rules that an engine with this admission breaks on frozen coordinates."""

    def factory(coordinate: Coordinate, capacity: int) -> Any:
        stages = Stages(coordinate=stage)
        return ReferenceEngine.seeded(coordinate.model, coordinate.heads, capacity, stages=stages)

    # The seed says at which of its three places a list is broken.
    coordinates = [
        replace(coordinate, policy=replace(coordinate.policy, seed=seed), expected={})
        for coordinate in map(load, names)
        for seed in range(len(PLACES))
    ]
    return {*judge_coordinates(factory, coordinates, SETTING).failed}


class Hashes(AdmissionStage):
    """Hashes of some files alone."""

    files = slice(None)

    def check_source(self, source: Mapping[str, Any]) -> None:
        self.check_variant(source)
        some = dict(list(source["files"].items())[self.files])
        super().check_source({**source, "files": some})


class FirstHash(Hashes):
    files = slice(0, 1)


class LastHash(Hashes):
    files = slice(-1, None)


class OuterHashes(Hashes):
    files = slice(None, None, 4)


class Tokens(AdmissionStage):
    """Some tokens of the prefix alone."""

    tokens = slice(None)

    def check_tokens(self, document: Mapping[str, Any]) -> None:
        super().check_tokens({**document, "prefix": document["prefix"][self.tokens]})


class FirstToken(Tokens):
    tokens = slice(0, 1)


class LastToken(Tokens):
    tokens = slice(-1, None)


class OuterTokens(Tokens):
    # Of the three tokens of a prefix.
    tokens = slice(None, None, 2)


class Neighbours(AdmissionStage):
    """Paths that occur twice in a row alone."""

    def check_tree(self, paths: Sequence[Sequence[int]], topk: int, heads: int) -> None:
        listed = [tuple(path) for path in paths]
        if any(one == other for one, other in pairwise(listed)):
            raise Refused("a path occurs twice")
        super().check_tree(sorted({*listed}), topk, heads)


class Deepest(AdmissionStage):
    """The ancestors of the first of the deepest paths alone."""

    def check_tree(self, paths: Sequence[Sequence[int]], topk: int, heads: int) -> None:
        deepest = tuple(max(paths, key=len, default=()))
        known = {tuple(path) for path in paths}
        for depth in range(1, len(deepest)):
            if deepest[:depth] not in known:
                raise Refused("a path lacks its ancestor")
        whole = {path[:depth] for path in known for depth in range(1, len(path))}
        added = sorted(whole - known)
        super().check_tree([*paths, *added], topk, heads)


class Ranks(AdmissionStage):
    """The ranks of some paths of the list alone."""

    paths = slice(None)

    def check_tree(self, paths: Sequence[Sequence[int]], topk: int, heads: int) -> None:
        for path in list(paths)[self.paths]:
            for rank in path:
                self.check_rank(rank, topk)
        super().check_tree(paths, 1 << 31, heads)


class FirstRanks(Ranks):
    paths = slice(0, 1)


class LastRanks(Ranks):
    paths = slice(-1, None)


class Depths(AdmissionStage):
    """The depth of one path of the list alone."""

    path = 0

    def check_tree(self, paths: Sequence[Sequence[int]], topk: int, heads: int) -> None:
        if paths:
            self.check_depth(len(paths[self.path]), heads)
        super().check_tree(paths, topk, 1 << 31)


class LastDepth(Depths):
    path = -1


PARTIAL = {
    FirstHash: "COORDINATE.SOURCE_PIN",
    LastHash: "COORDINATE.SOURCE_PIN",
    OuterHashes: "COORDINATE.SOURCE_PIN",
    FirstToken: "COORDINATE.TOKEN_DOMAIN",
    LastToken: "COORDINATE.TOKEN_DOMAIN",
    OuterTokens: "COORDINATE.TOKEN_DOMAIN",
    Neighbours: "COORDINATE.PATHS_DISTINCT",
    Deepest: "COORDINATE.PREFIX_CLOSED",
    FirstRanks: "COORDINATE.RANK_BELOW_TOPK",
    LastRanks: "COORDINATE.RANK_BELOW_TOPK",
    Depths: "COORDINATE.DEPTH_WITHIN_HEADS",
    LastDepth: "COORDINATE.DEPTH_WITHIN_HEADS",
}


@pytest.mark.parametrize("stage", PARTIAL, ids=lambda stage: stage.__name__)
def test_a_check_of_some_places_admits_what_is_broken_at_another(
    stage: type[AdmissionStage],
) -> None:
    assert failed(stage, "six-node", "regular-3-2-2") == {PARTIAL[stage]}


class EarlierUnread(AdmissionStage):
    """Nothing of the earlier generation is checked."""

    def admit(self, document: Mapping[str, Any]) -> Any:
        self.check_schema(document)
        own = {name: value for name, value in document.items() if name != "earlier"}
        found = super().admit(own)
        given = {"earlier": document["earlier"]} if "earlier" in document else {}
        return type(found)({**found.document, **given}, found.rows)


def test_every_rule_of_a_tree_is_broken_in_the_earlier_one_too() -> None:
    assert failed(AdmissionStage, "crosses-128") == set()
    assert failed(EarlierUnread, "crosses-128") == {
        "COORDINATE.PATHS_DISTINCT",
        "COORDINATE.PREFIX_CLOSED",
        "COORDINATE.RANK_BELOW_TOPK",
        "COORDINATE.DEPTH_WITHIN_HEADS",
        "COORDINATE.CAPACITY",
        "COORDINATE.TOKEN_DOMAIN",
    }
