"""Each oracle of the exactness contract: silent on a lawful law, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from medusa_oracles import judge
from medusa_spec import Trace
from medusa_spec.coordinate import Exactness, SamplingMode
from medusa_spec.registry import of_contract

# A coin behind a certain root: 00 and 01 with a half each; by one draw for each path, 3/4 and 1/4.
BIASED = np.array([0.75, 0.25, 0.0, 0.0])

CASES: dict[str, tuple[SamplingMode, Callable[[Trace], dict[str, Any]]]] = {
    "EXACTNESS.PROCESSED_ROWS": (
        "row-draw",
        lambda t: {"exactness.rows": t["exactness.rows"] / 2},
    ),
    "EXACTNESS.TARGET": ("nucleus-per-path", lambda _: {"exactness.target": BIASED}),
    "EXACTNESS.GREEDY": ("greedy", lambda _: {"exactness.law": BIASED}),
    "EXACTNESS.LAW": ("row-draw", lambda _: {"exactness.law": BIASED}),
    "EXACTNESS.MODE_LAW": (
        "nucleus-per-path",
        lambda t: {"exactness.law": t["exactness.target"]},
    ),
    "EXACTNESS.DISTANCE": ("nucleus-per-path", lambda _: {"exactness.distance": np.array(0.5)}),
    "EXACTNESS.LABEL": ("nucleus-per-path", lambda t: claiming(t, claim="target-law")),
    "EXACTNESS.CORRECTION_STATE": ("rejection", lambda t: claiming(t, correction=None)),
    "EXACTNESS.PRODUCT_IS_NOT_PATH": (
        "row-draw",
        lambda t: claiming(t, scores="path-probability"),
    ),
    "EXACTNESS.SAMPLED_LAW": (
        "row-draw",
        lambda t: {"exactness.tokens": np.repeat([[0, 0], [0, 1]], (225, 75), axis=0)},
    ),
    "EXACTNESS.SEEDED": (
        "row-draw",
        lambda t: {"exactness.again": t["exactness.other"]},
    ),
}


def claiming(trace: Trace, **words: Any) -> dict[str, Any]:
    return {"exactness.claim": {**trace["exactness.claim"], **words}}


def of(trace: Trace, code: str, changes: dict[str, Any]) -> list[Any]:
    """The findings of one rule, with other values of some names; `...` leaves a name out."""
    arrays = {k: v for k, v in {**trace.arrays, **changes}.items() if isinstance(v, np.ndarray)}
    given = {k: v for k, v in {**trace.documents, **changes}.items() if isinstance(v, dict)}
    changed = replace(trace, arrays=arrays, documents=given)
    return [finding for finding in judge(changed).findings if finding.code == code]


def test_every_invariant_has_a_case() -> None:
    assert set(CASES) == {invariant.code for invariant in of_contract("exactness")}


@pytest.mark.parametrize("code", CASES)
def test_oracle(
    code: str,
    exactness: Callable[..., Exactness],
    published: Callable[[Exactness], Trace],
    prove: Any,
) -> None:
    mode, corrupt = CASES[code]
    trace = published(exactness(mode))
    prove(code, trace, corrupt(trace))


def test_a_law_that_is_off_says_how_far_and_where(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    trace = published(exactness("row-draw"))
    (finding,) = of(trace, "EXACTNESS.LAW", {"exactness.law": BIASED})
    assert "total variation 0.25, and most of it at [0, " in finding.message
    assert abs(finding.expected - finding.observed) == pytest.approx(0.25)


@pytest.mark.parametrize("mode", ["greedy", "row-draw", "rejection"])
def test_an_exact_mode_may_be_called_a_heuristic(
    mode: SamplingMode,
    exactness: Callable[..., Exactness],
    published: Callable[[Exactness], Trace],
) -> None:
    trace = published(exactness(mode))
    modest = claiming(trace, claim="heuristic")
    assert of(trace, "EXACTNESS.LABEL", modest) == []
    # Then its law is judged as its mode's own, which is the same one.
    code = "EXACTNESS.GREEDY" if mode == "greedy" else "EXACTNESS.MODE_LAW"
    assert of(trace, code, modest) == []
    assert of(trace, code, modest | {"exactness.law": BIASED})


@pytest.mark.parametrize(
    ("mode", "word"),
    [
        ("fast-typical", "target-law"),
        ("fast-typical", "greedy-exact"),
        ("typical-per-path", "target-law"),
        ("rejection-uncorrected", "target-law"),
        ("row-draw", "greedy-exact"),
        ("greedy", "lossless"),
        ("greedy", None),
    ],
)
def test_nothing_is_called_what_it_is_not(
    mode: SamplingMode,
    word: str | None,
    exactness: Callable[..., Exactness],
    published: Callable[[Exactness], Trace],
) -> None:
    trace = published(exactness(mode))
    (finding,) = of(trace, "EXACTNESS.LABEL", claiming(trace, claim=word))
    assert finding.observed == word
    (finding,) = of(trace, "EXACTNESS.LABEL", claiming(trace, mode="other"))
    assert (finding.expected, finding.observed) == (mode, "other")


def test_fast_typical_is_no_exact_mode_where_its_law_is_the_targets(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    """Over certain rows every mode publishes what the target does, and that proves nothing."""
    trace = published(exactness("fast-typical", model=((1, 0),) * 3))
    assert trace["exactness.distance"] == 0
    (finding,) = of(trace, "EXACTNESS.LABEL", claiming(trace, claim="target-law"))
    assert finding.expected == ["heuristic"]


def test_each_word_of_a_correction_is_read(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    trace = published(exactness("rejection"))
    code, said = "EXACTNESS.CORRECTION_STATE", trace["exactness.claim"]["correction"]
    for word in said:
        (finding,) = of(trace, code, claiming(trace, correction=said | {word: ""}))
        assert finding.message == f"a rejection does not name {word}"
    (finding,) = of(trace, code, claiming(trace, rejects=False))
    assert finding.message == "a rejection does not name itself"
    (finding,) = of(trace, code, {"exactness.proposal": trace["exactness.proposal"] / 2})
    assert finding.where == {"head": 0, "context": 0, "token": 0}
    assert of(trace, code, {"exactness.proposal": ...}) == []


def test_a_product_that_is_sold_as_a_probability_is_named(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    # A coin that stays as it fell: either head is right with half, and 00 comes with half.
    fair = ((1, 1),) * 3
    given = exactness(
        "row-draw", model=((1, 1), (1, 0), (0, 1)), drafts=(fair, fair), paths=((0,), (0, 0))
    )
    trace, code = published(given), "EXACTNESS.PRODUCT_IS_NOT_PATH"
    assert trace["exactness.path_probability"][0].tolist() == [0.5, 0.5]
    product = np.array([[0.5, 0.25]] * 3)
    (finding,) = of(trace, code, {"exactness.path_probability": product})
    assert finding.message == "the product of head probabilities is given for a path's"
    other = trace["exactness.path_probability"] + [[0.0, 0.25]] * 3
    (finding,) = of(trace, code, {"exactness.path_probability": other})
    assert finding.message == "a path is given another probability than the target's own"
    assert of(trace, code, {"exactness.path_probability": ...}) == []


def test_a_row_of_the_tree_is_placed_behind_its_token(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    trace = published(exactness("row-draw"))
    code, rows = "EXACTNESS.PROCESSED_ROWS", trace["exactness.rows"].copy()
    rows[0] = [0.25, 0.75]
    (finding,) = of(trace, code, {"exactness.rows": rows})
    assert finding.where["context"] == 1
    roots = trace["exactness.roots"].copy()
    roots[0] = [0.25, 0.75]
    (finding,) = of(trace, code, {"exactness.roots": roots})
    assert finding.where["context"] == 0
    (finding,) = of(trace, code, {"exactness.rows": roots})
    assert finding.message.endswith("the shape differs")


def test_an_impossible_sequence_is_a_breach_at_once(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    trace = published(exactness("row-draw"))
    tokens = trace["exactness.tokens"].copy()
    tokens[0] = [1, 0]
    (finding,) = of(trace, "EXACTNESS.SAMPLED_LAW", {"exactness.tokens": tokens})
    assert finding.message == "[1, 0] was drawn 1 times of 300, and is impossible"
    assert finding.where == {"sequence": 2}


@pytest.mark.parametrize(
    "tokens",
    [
        *(np.zeros(shape, int) for shape in ((300, 3), (0, 2), (299, 2), (301, 2), (600,))),
        *(np.full((300, 2), token) for token in (2, -1)),
        np.zeros((300, 2)),
    ],
)
def test_what_are_no_sequences_of_the_table_is_said(
    tokens: Any, exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    trace = published(exactness("row-draw"))
    (finding,) = of(trace, "EXACTNESS.SAMPLED_LAW", {"exactness.tokens": tokens})
    assert finding.message.startswith("what was observed is of no form that can be judged")


DEPENDENT: dict[str, tuple[str, Callable[[Any, Any], dict[str, Any]]]] = {
    "each sequence twice": (
        "EXACTNESS.SAMPLED_LAW",
        lambda t, _: {"tokens": np.repeat(t[:150], 2, axis=0)},
    ),
    "sorted": ("EXACTNESS.SAMPLED_LAW", lambda t, _: {"tokens": np.sort(t, axis=0)}),
    "another law behind another seed": (
        "EXACTNESS.SAMPLED_LAW",
        lambda t, _: {"other": np.zeros_like(t)},
    ),
    "a seed for each place": (
        "EXACTNESS.SEEDED",
        lambda t, o: {"other": np.concatenate([t[1:], o[:1]])},
    ),
    "a seed for every second": (
        "EXACTNESS.SEEDED",
        lambda t, o: {"other": np.where(np.arange(300)[:, None] % 2, t, o)},
    ),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_draws_that_depend_on_each_other_are_heard(
    name: str, exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    trace = published(exactness("row-draw"))
    code, change = DEPENDENT[name]
    assert of(trace, code, {}) == []
    changed = change(trace["exactness.tokens"], trace["exactness.other"])
    assert len(of(trace, code, {f"exactness.{n}": v for n, v in changed.items()})) == 1


def test_integers_of_any_kind_are_tokens(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    trace = published(exactness("row-draw"))
    for kind in (np.uint64, np.int8):
        changes = {"exactness.tokens": trace["exactness.tokens"].astype(kind)}
        assert of(trace, "EXACTNESS.SAMPLED_LAW", changes) == []


def test_a_distance_without_a_target_is_that_from_the_target(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    trace, code = published(exactness("nucleus-per-path")), "EXACTNESS.DISTANCE"
    assert of(trace, code, {"exactness.target": ...}) == []
    wrong = {"exactness.target": ..., "exactness.distance": np.array(0.0)}
    (finding,) = of(trace, code, wrong)
    assert (finding.expected, finding.observed) == (0.25, 0.0)


def test_no_other_mode_is_said_to_reject(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    code = "EXACTNESS.CORRECTION_STATE"
    trace = published(exactness("row-draw"))
    assert code not in judge(trace).executed
    (finding,) = of(trace, code, claiming(trace, rejects=True))
    assert finding.message == "row-draw is said to reject drafts"
    rejection = published(exactness("rejection"))
    assert of(rejection, code, claiming(rejection, rejects="yes"))
    four = dict.fromkeys(rejection["exactness.claim"]["correction"], True)
    assert of(rejection, code, claiming(rejection, correction=four))
    # The numbers are enough.
    alone = {"exactness.claim": ..., "exactness.proposal": rejection["exactness.proposal"] / 2}
    assert of(rejection, code, alone)
    bare = published(exactness("rejection", drafts=(), paths=()))
    assert of(bare, code, {"exactness.proposal": np.zeros(0)}) == []


def test_seeds_of_a_law_without_chance_say_nothing(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    certain = published(exactness("greedy"))
    assert "EXACTNESS.SEEDED" not in judge(certain).executed
    chancy = published(exactness("row-draw"))
    assert "EXACTNESS.SEEDED" in judge(chancy).executed
    same = {"exactness.other": chancy["exactness.tokens"]}
    (finding,) = of(chancy, "EXACTNESS.SEEDED", same)
    assert finding.message == "two seeds gave the same answer"
    # Ten tosses of a coin come twice alike once in a thousand, which is no proof.
    few = published(exactness("row-draw", samples=10))
    assert of(few, "EXACTNESS.SEEDED", {"exactness.other": few["exactness.tokens"]}) == []


def test_what_rounding_decides_is_not_judged(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    """Half of a fair coin stands before its second side, and half is where the nucleus ends."""
    near = published(exactness("row-draw", top_p=0.5))
    assert judge(near).executed == ("EXACTNESS.LABEL",)
    clear = published(exactness("row-draw", top_p=0.6))
    assert len(judge(clear).executed) == 8


def test_what_is_shown_of_a_law_is_judged_alone(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    trace = published(exactness("nucleus-per-path"))

    def executed(*names: str) -> set[str]:
        arrays = {n: v for n, v in trace.arrays.items() if n.removeprefix("exactness.") in names}
        given = {n: v for n, v in trace.documents.items() if n.removeprefix("exactness.") in names}
        judgement = judge(replace(trace, arrays=arrays, documents=given))
        assert judgement.findings == ()
        return {code.removeprefix("EXACTNESS.") for code in judgement.executed}

    assert executed("law") == {"MODE_LAW"}
    assert executed("law", "target", "distance") == {"MODE_LAW", "TARGET", "DISTANCE"}
    assert executed("tokens") == {"SAMPLED_LAW"}
    assert executed("tokens", "again", "other") == {"SAMPLED_LAW", "SEEDED"}
    assert executed("law", "distance") == {"MODE_LAW", "DISTANCE"}
    assert executed("roots") == executed("rows") == {"PROCESSED_ROWS"}
    assert executed("path_probability") == {"PRODUCT_IS_NOT_PATH"}
    assert executed("claim") == {"LABEL", "PRODUCT_IS_NOT_PATH"}


def test_a_coordinate_without_tables_has_no_law(
    exactness: Callable[..., Exactness], published: Callable[[Exactness], Trace]
) -> None:
    trace = published(exactness("row-draw"))
    bare = replace(trace, coordinate=replace(trace.coordinate, exactness=None))
    assert judge(bare).executed == ()
