"""What a mutant leaves as it was, just as its `preserves` says; and that it is not the original.

Original and mutant go the same line side by side, up to the first trace in which they differ. All
before it is the same, so there the stage was asked the same, and its answer has the shape of the
original's. What follows from a wrong answer may lawfully have another length: a round may accept
more or less, and a generation may take more rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from medusa_conformance.line import Crash
from medusa_conformance.runner import Setting, line_of, reference_factory, showing
from medusa_mutations import Mutation, mutations
from medusa_spec import Coordinate, Trace
from medusa_spec.arrays import Array
from medusa_spec.documents import schema_errors

SETTING = Setting("cpu", "float64")

SHAPES = "shapes and dtypes of every array"
COUNT = "dtypes of every array, and every shape but for the number of published tokens"
OWN = "shapes and dtypes of every array that the original has"
STAGED = "shapes and dtypes of every array, of a backbone's loss where it trains"
PATHS = "dtypes of every array, and every shape but for the number of paths"
SESSION = "dtypes of every array, and every shape but for the rows of a session"
BITS = "every array, to the bit"
ROOM = "every array, to the bit, while a row of the cache is free"
DOCUMENT = "schema-validity of the document, and the shape of the admitted rows"
PROBABLE = "schema-validity of the document where alpha is a probability, and the shape of the rows"
ROWS = "the shape of the admitted rows"
FREE = "the answer to every document that leaves a row of the cache free"

ADDED = {
    OWN: {"heads.state.projection", "plain.state.projection"},
    STAGED: {"training.backbone_loss"},
}
"""Arrays that the mutant may have where the original has none."""

GROWING = {
    "commit.tokens": 0,
    "commit.source": 0,
    "commit.destination": 0,
    "round.visible_kv": 3,
    "round.fresh_kv": 3,
    "chain.plain_heads": 1,
    "search.weights": 0,
    "checkpoint.session_kv": 3,
    **{
        f"{name}.{part}": 0
        for name in ("generation", "chain", "fresh", "rounds")
        for part in ("tokens", "published", "frontiers", "plain_logits")
    },
}
"""The axis of each array that is as long as there are published tokens, rounds, paths, or rows."""

ENOUGH = 2
"""Coordinates on which a mutant differs, after which no other is looked at."""

EVERY = pytest.mark.parametrize("mutation", mutations().values(), ids=lambda m: m.id)


def traces(coordinate: Coordinate, mutation: Mutation | None, contract: str) -> Iterator[Trace]:
    """What an engine leaves behind on the line, as far as it is asked for."""
    line = line_of(reference_factory(SETTING, mutation), coordinate, SETTING)
    for seen in line.run(showing(contract)):
        assert not isinstance(seen, Crash), seen
        yield seen


@pytest.fixture(scope="session")
def originals() -> Callable[[Coordinate, str], list[Trace]]:
    """The original's traces, made once for admission and once for all else."""
    kept: dict[tuple[str, bool, tuple[str, ...]], list[Trace]] = {}

    def of(coordinate: Coordinate, contract: str) -> list[Trace]:
        key = coordinate.name, contract == "coordinate", showing(contract)
        if key not in kept:
            kept[key] = list(traces(coordinate, None, contract))
        return kept[key]

    return of


def documents(trace: Trace) -> dict[str, Any]:
    """What is no array. That an engine refuses is compared, and not in which words."""
    return {
        name: value is not None if name.endswith("refused") else value
        for name, value in trace.documents.items()
    }


def same(ours: Array, theirs: Array | None) -> bool:
    return (
        theirs is not None
        and (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        and np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f")
    )


def differing(ours: Trace, theirs: Trace) -> list[str]:
    """Names of the original's arrays that the mutant gives otherwise or not, in their order."""
    return [name for name, array in ours.arrays.items() if not same(array, theirs.arrays.get(name))]


def differ(ours: Trace, theirs: Trace) -> bool:
    return (
        bool(differing(ours, theirs))
        or ours.arrays.keys() != theirs.arrays.keys()
        or documents(ours) != documents(theirs)
    )


def fixed_shape(name: str, array: Array) -> list[int]:
    shape = list(array.shape)
    if name in GROWING:
        del shape[GROWING[name]]
    return shape


def fills_the_cache(trace: Trace) -> bool:
    """Whether the tree of a round, or the last of a generation, takes the last free row."""
    coordinate, published = trace.coordinate, 0
    if trace.has("generation.asked"):
        published = int(trace["generation.asked"]) - 1
    committed = len(trace["round.tokens"]) if trace.has("round.tokens") else len(coordinate.prefix)
    # A cache may be smaller than the coordinate's, so that a round fills it.
    rows = trace["cache.before"].shape[3] if trace.has("cache.before") else coordinate.capacity
    filled: bool = committed + published + coordinate.nodes == rows
    return filled


def check_arrays(preserves: str, ours: Trace, theirs: Trace) -> None:
    """The first trace that differs, where all that came before is the same."""
    changed = differing(ours, theirs)
    full = preserves == ROOM and fills_the_cache(ours)
    if preserves in (BITS, ROOM):
        assert full or changed == []
    ended_early = documents(ours).get("round.refused") != documents(theirs).get("round.refused")
    if not ended_early:
        added = ADDED.get(preserves, set())
        assert theirs.arrays.keys() - ours.arrays.keys() <= added
        left_out = added if preserves == STAGED else set()
        assert ours.arrays.keys() - theirs.arrays.keys() <= left_out
    for name in ours.arrays.keys() & theirs.arrays.keys():
        assert ours.arrays[name].dtype == theirs.arrays[name].dtype, name
        assert fixed_shape(name, ours.arrays[name]) == fixed_shape(name, theirs.arrays[name]), name
    first = next((name for name in changed if name in theirs.arrays), None)
    whole_generation = "generation.asked" in ours.arrays
    if first is not None and preserves not in (COUNT, PATHS, SESSION) and not whole_generation:
        # The stage's own answer; only what follows from it has another length.
        assert ours.arrays[first].shape == theirs.arrays[first].shape, first


def lengths(trace: Trace) -> dict[str, int]:
    """How many tokens were published, rounds taken, paths admitted, or rows kept."""
    arrays = trace.arrays
    return {name: arrays[name].shape[axis] for name, axis in GROWING.items() if name in arrays}


def check_admission(preserves: str, ours: Trace, theirs: Trace) -> None:
    """One document: what the mutant admits has the form of what the original admits."""
    if not theirs.has("coordinate.given"):
        assert not differ(ours, theirs)
        return
    given = theirs["coordinate.given"]
    if preserves == FREE:
        full = len(given["prefix"]) + len(given["paths"]) + 1 == given["capacity"]
        assert full or not differ(ours, theirs)
    if not theirs.has("coordinate.admitted"):
        return
    rows = theirs["coordinate.rows"]
    assert len(rows) == len(given["paths"]) + 1
    names = ["row", "rank", "head", "slot", "depth", "position", "cache_row"]
    assert all(list(row) == names for row in rows)
    if preserves in (DOCUMENT, PROBABLE):
        excused = preserves == PROBABLE and given["policy"]["alpha"] > 1
        assert excused or schema_errors(theirs["coordinate.admitted"], "coordinate") == []


CHECKS: Mapping[str, Callable[[str, Trace, Trace], None]] = {
    **dict.fromkeys((SHAPES, COUNT, PATHS, SESSION, OWN, STAGED, BITS, ROOM), check_arrays),
    **dict.fromkeys((DOCUMENT, PROBABLE, ROWS, FREE), check_admission),
}


@EVERY
def test_a_mutant_preserves_what_it_says_and_differs_somewhere(
    mutation: Mutation,
    small_coordinates: list[Coordinate],
    originals: Callable[[Coordinate, str], list[Trace]],
    skip_broken_documents: Callable[[str], None],
) -> None:
    preserves, contract = mutation.preserves, mutation.contract
    skip_broken_documents(contract)
    differences, recounted = 0, False
    for coordinate in small_coordinates:
        if differences == ENOUGH:
            break
        # A round that the mutant refuses has no successor.
        broken = traces(coordinate, mutation, contract)
        for ours, theirs in zip(originals(coordinate, contract), broken, strict=False):
            CHECKS[preserves](preserves, ours, theirs)
            if differ(ours, theirs):
                differences += 1
                recounted |= lengths(ours) != lengths(theirs)
                break
    assert differences
    # Nothing is taken out of what is preserved without need.
    assert recounted or preserves not in (COUNT, PATHS)
