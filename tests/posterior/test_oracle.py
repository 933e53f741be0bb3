"""Each oracle of the posterior contract: silent on a lawful trace, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import medusa_spec
from medusa_oracles import judge
from medusa_spec import Trace
from medusa_spec.registry import of_contract

# Rows: root, (0) (1) (2), (0,0) (0,1) (1,0), (1,0,2); retrieval ends at rows 3, 4, 5 and 7.
PATHS = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (1, 0, 2))
# Two edges of path 3 are the target's own choice, and the third is not.
PLAUSIBLE = ((0, 2), (2, 6))


def _at(array: Any, index: Any, value: Any) -> Any:
    changed = array.copy()
    changed[index] = value
    return changed


def _one_edge_each(_: Trace) -> dict[str, Any]:
    """Paths 1 and 2 share their first edge; the second of the two is taken."""
    passes = np.zeros((4, 3), np.bool_)
    passes[1:3, 0] = True
    return {
        "selection.passes": passes,
        "selection.lengths": np.array([0, 1, 1, 0]),
        "selection.path": np.array(2),
        "selection.accepted": np.array(1),
    }


def _greater_sum(trace: Trace) -> dict[str, Any]:
    """Paths 1 and 3 pass two edges; 0.45 + 0.06 is more than 0.40 + 0.08, and likely less."""
    lengths, probability = np.array([0, 2, 0, 2]), np.zeros((4, 3))
    probability[1, :2], probability[3, :2] = (0.45, 0.06), (0.40, 0.08)
    return {
        "selection.lengths": lengths,
        "selection.probability": probability,
        "selection.path": np.array(1),
    }


CASES: dict[str, tuple[str, Callable[[Trace], dict[str, Any]]]] = {
    "POSTERIOR.ROOT_PUBLISHED": ("greedy", lambda t: {"commit.tokens": t["commit.tokens"][1:]}),
    # The first edge fails although the target chooses its token.
    "POSTERIOR.GREEDY_MATCH": (
        "greedy",
        lambda t: {"selection.passes": _at(t["selection.passes"], (3, 0), False)},
    ),
    # A pass behind the first failure is counted.
    "POSTERIOR.CONTIGUOUS_PREFIX": (
        "greedy",
        lambda t: (
            {"selection.passes": _at(t["selection.passes"], (1, 1), True)}
            | {"selection.lengths": _at(t["selection.lengths"], 1, 1)}
        ),
    ),
    "POSTERIOR.FIRST_MAXIMAL_PATH": ("greedy", _one_edge_each),
    "POSTERIOR.DEFAULT_PATH": ("nothing", lambda _: {"selection.path": np.array(3)}),
    # The maximum for the minimum.
    "POSTERIOR.THRESHOLD": (
        "typical",
        lambda t: {"selection.threshold": np.maximum(0.09, 0.3 * np.exp(-t["selection.entropy"]))},
    ),
    # A probability exactly at its threshold passes.
    "POSTERIOR.STRICT": (
        "typical",
        lambda t: {
            "selection.probability": _at(
                t["selection.probability"], (1, 0), t["selection.threshold"][1, 0]
            ),
            "selection.passes": _at(t["selection.passes"], (1, 0), True),
        },
    ),
    # Bits for nats.
    "POSTERIOR.ENTROPY": (
        "typical",
        lambda t: {"selection.entropy": t["selection.entropy"] / np.log(2)},
    ),
    # The softmax of logits that no temperature divided.
    "POSTERIOR.TEMPERATURE": (
        "typical",
        lambda t: {"selection.probability": _untempered(t)},
    ),
    # Another rule decides: no edge passes, far from every threshold.
    "POSTERIOR.TYPICAL_MATCH": (
        "typical",
        lambda t: {"selection.passes": np.zeros_like(t["selection.passes"])},
    ),
    "POSTERIOR.LIKELIHOOD_TIE": ("typical", _greater_sum),
    "POSTERIOR.SENTINEL": (
        "greedy",
        lambda t: {"selection.passes": _at(t["selection.passes"], (0, 1), True)},
    ),
    "POSTERIOR.FINITE": ("unlawful", lambda _: {"selection.refused": None}),
    "POSTERIOR.LENGTH_CONVENTION": (
        "greedy",
        lambda t: {"selection.accepted": t["selection.accepted"] + 1},
    ),
    "POSTERIOR.EXACT_LABEL": (
        "typical",
        lambda t: {"selection.label": t["selection.label"] | {"claim": "greedy-exact"}},
    ),
    # Named, but for the randomness that accepted.
    "POSTERIOR.CORRECTION_STATE": (
        "typical",
        lambda t: {
            "selection.label": {
                "claim": "target-law",
                "rejects": True,
                "correction": {
                    "proposal_law": "q",
                    "stored_probabilities": "q(x)",
                    "residual": "max(p - q, 0)",
                },
            }
        },
    ),
}


def _untempered(trace: Trace) -> Any:
    logits, candidates = trace["selection.path_logits"], trace["selection.candidates"]
    probability = np.zeros((len(candidates), candidates.shape[1] - 1))
    for path, tokens in enumerate(candidates.tolist()):
        for place, token in enumerate(tokens[1:]):
            weights = np.exp(logits[path, place])
            probability[path, place] = weights[token] / weights.sum() if token >= 0 else 0.0
    return probability


@pytest.fixture(scope="module")
def traces(coordinate: Any, lawful_trace: Any, literal: Any) -> dict[str, Trace]:
    greedy = lawful_trace(coordinate(PATHS), literal, PLAUSIBLE)
    spoiled = _at(greedy["selection.path_logits"], (1, 0, 3), np.nan)
    unlawful = {"selection.candidates": greedy["selection.candidates"]}
    return {
        "greedy": greedy,
        "typical": lawful_trace(coordinate(PATHS, "fast-typical"), literal, PLAUSIBLE),
        "nothing": lawful_trace(coordinate(PATHS), literal),
        "unlawful": replace(
            greedy,
            arrays=unlawful | {"selection.path_logits": spoiled},
            documents={"selection.refused": "a logit is no number"},
        ),
    }


def test_the_rounds_are_the_ones_they_are_taken_for(traces: dict[str, Trace]) -> None:
    winner = [(int(t["selection.path"]), int(t["selection.accepted"])) for t in _rounds(traces)]
    assert winner == [(3, 2), (3, 2), (0, 0)]


def _rounds(traces: dict[str, Trace]) -> list[Trace]:
    return [traces[name] for name in ("greedy", "typical", "nothing")]


def test_every_invariant_has_a_case() -> None:
    assert set(CASES) == {invariant.code for invariant in of_contract("posterior")}


@pytest.mark.parametrize("code", CASES)
def test_oracle(code: str, traces: dict[str, Trace], prove: Any) -> None:
    situation, corrupt = CASES[code]
    prove(code, traces[situation], corrupt(traces[situation]))


CORRECTION = dict.fromkeys(
    ("proposal_law", "stored_probabilities", "randomness", "residual"), "named"
)


def test_no_correction_makes_fast_typical_exact(traces: dict[str, Trace], fired: Any) -> None:
    label = {"claim": "target-law", "rejects": True, "correction": CORRECTION}
    assert fired(traces["typical"], {"selection.label": label}) == {"POSTERIOR.EXACT_LABEL"}


@pytest.mark.parametrize("claim", ["target-law", "heuristic", "absent"])
def test_greedy_is_exact_for_its_own_policy_alone(
    claim: str, traces: dict[str, Trace], fired: Any
) -> None:
    label = {"rejects": False, "correction": CORRECTION}
    if claim != "absent":
        label["claim"] = claim
    assert "POSTERIOR.EXACT_LABEL" in fired(traces["greedy"], {"selection.label": label})


@pytest.mark.parametrize("place", [(0, 0, 1), (3, 3, 47), (3, 1, 0)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_real_logit_may_be_other_than_finite(
    place: tuple[int, int, int], value: float, traces: dict[str, Trace], fired: Any
) -> None:
    spoiled = _at(traces["greedy"]["selection.path_logits"], place, value)
    changes = {"selection.path_logits": spoiled}
    assert "POSTERIOR.FINITE" in fired(traces["greedy"], changes)


def test_a_logit_at_padding_may_be_anything(traces: dict[str, Trace], fired: Any) -> None:
    spoiled = _at(traces["typical"]["selection.path_logits"], (0, 3), np.nan)
    assert fired(traces["typical"], {"selection.path_logits": spoiled}) == set()


@pytest.mark.parametrize("name", ["greedy", "typical"])
def test_path_logits_of_fewer_paths_are_not_stretched(name: str, traces: dict[str, Trace]) -> None:
    lawful = traces[name]
    fewer = {"selection.path_logits": lawful["selection.path_logits"][:1]}
    found = judge(replace(lawful, arrays={**lawful.arrays, **fewer})).findings
    said = {finding.code: finding.message for finding in found}
    code = "POSTERIOR.GREEDY_MATCH" if name == "greedy" else "POSTERIOR.TEMPERATURE"
    assert "path logits of (1, 4, 48) for candidates of (4, 4)" in said[code]


SHOWN = ("passes", "lengths", "probability", "entropy", "threshold")


def winner_only(trace: Trace, path: int, accepted: int, *shown: str) -> dict[str, Any]:
    """What is found of a selection that shows a winner, its accepted edges, and what is `shown`."""
    arrays = {**trace.arrays, "selection.path": np.array(path)}
    arrays["selection.accepted"] = np.array(accepted)
    for name in {*SHOWN} - {*shown}:
        arrays.pop(f"selection.{name}", None)
    found = judge(replace(trace, arrays=arrays), frozenset({"posterior"})).findings
    return {finding.code: finding for finding in found}


@pytest.fixture(scope="module", params=["greedy", "fast-typical"])
def short(request: Any, coordinate: Any, lawful_trace: Any, literal: Any) -> Trace:
    """The target chooses the token of the first path, which has one edge and two padded entries."""
    found: Trace = lawful_trace(coordinate(PATHS, request.param), literal, ((0, 3),))
    assert (int(found["selection.path"]), int(found["selection.accepted"])) == (0, 1)
    assert (found["selection.candidates"][0] < 0).tolist() == [False, False, True, True]
    return found


@pytest.mark.parametrize("accepted", [2, 3])
def test_a_winner_alone_shows_that_padding_was_accepted(accepted: int, short: Trace) -> None:
    assert winner_only(short, 0, 1) == {}
    (finding,) = winner_only(short, 0, accepted).values()
    assert finding.code == "POSTERIOR.SENTINEL"
    assert finding.message == f"path 0 ends after 1 edge, and {accepted} were accepted"
    assert (finding.where, finding.expected) == ({"path": 0, "entry": 2}, 1)
    assert finding.observed == accepted


def test_padding_that_passes_is_one_fault(short: Trace) -> None:
    # As an engine has it that fills padding with token 0, and shows all that it decided.
    changes = {"passes": ((0, 1), True), "lengths": (0, 2), "probability": ((0, 1), 0.0)}
    arrays = {
        f"selection.{name}": _at(short[f"selection.{name}"], *change)
        for name, change in changes.items()
        if short.has(f"selection.{name}")
    }
    padded = replace(short, arrays={**short.arrays, **arrays})
    assert list(winner_only(padded, 0, 2, *SHOWN)) == ["POSTERIOR.SENTINEL"]
    assert list(winner_only(padded, 0, 2, "passes")) == ["POSTERIOR.SENTINEL"]
    # The lengths of another path than the winner, where no passes are shown.
    found = winner_only(padded, 1, 2, "lengths")["POSTERIOR.SENTINEL"]
    assert found.message == "path 0 ends after 1 edge, and 2 were accepted"


def test_a_real_edge_that_fails_is_found_beside_padding(short: Trace) -> None:
    # Path 1 has two edges, both of which fail, and one padded entry.
    found = winner_only(short, 1, 3)
    match = {"POSTERIOR.GREEDY_MATCH", "POSTERIOR.TYPICAL_MATCH"} & set(found)
    assert len(match) == 1
    assert set(found) == {"POSTERIOR.SENTINEL", *match}
    assert found[match.pop()].where == {"path": 1, "edge": 0}


HINT = "; answer passes and lengths too, and every edge is judged"


@pytest.mark.parametrize("name", ["greedy", "typical"])
@pytest.mark.parametrize(
    ("path", "accepted", "where", "said"),
    [
        # Path 3 passes two of its three edges, and no other path passes any.
        (3, 3, {"path": 3, "edge": 2}, ": edge 2 of path 3 is accepted, and does not pass"),
        (3, 1, {"path": 3, "edge": 1}, ": edge 1 of path 3 passes, and is not accepted"),
        (1, 1, {"path": 1, "edge": 0}, ": edge 0 of path 1 is accepted, and does not pass"),
        (0, 0, {"path": 3, "edge": 0}, ": edge 0 of path 3 passes, and is not accepted"),
        (7, 3, {}, ""),
        (3, -1, {}, ""),
    ],
)
def test_accepted_edges_alone_name_the_edge(
    name: str, path: int, accepted: int, where: Any, said: str, traces: dict[str, Trace]
) -> None:
    found = winner_only(traces[name], path, accepted)
    finding = found["POSTERIOR.GREEDY_MATCH" if name == "greedy" else "POSTERIOR.TYPICAL_MATCH"]
    message = "the accepted edges are not as many as the policy passes"
    assert finding.message == message + said + HINT
    assert (finding.where, finding.expected, finding.observed) == (where, 2, accepted)
    assert "POSTERIOR.SENTINEL" not in found


def test_more_edges_than_a_path_of_full_width_has_are_no_padding(
    coordinate: Any, lawful_trace: Any, literal: Any
) -> None:
    # The root is counted.
    whole = lawful_trace(coordinate(PATHS), literal, ((0, 2), (2, 6), (6, 7)))
    assert int(whole["selection.accepted"]) == 3
    (finding,) = winner_only(whole, 3, 4).values()
    assert finding.code == "POSTERIOR.GREEDY_MATCH"
    assert (finding.where, finding.expected, finding.observed) == ({"path": 3}, 3, 4)


def test_what_is_owed_for_a_logit_that_is_no_number_is_named(traces: dict[str, Trace]) -> None:
    unlawful = traces["unlawful"]
    (finding,) = judge(replace(unlawful, documents={"selection.refused": None})).findings
    assert (finding.code, finding.observed) == ("POSTERIOR.FINITE", "a selection")
    assert f"medusa_spec.{medusa_spec.Refused.__name__}" in finding.expected
    assert "dialect refusals: any-error" in finding.expected


def test_sums_of_logs_may_round(traces: dict[str, Trace], fired: Any) -> None:
    # 0.4 * 0.08 and 0.08 * 0.4, the second of which is given as the winner.
    probability = np.zeros((4, 3))
    probability[1, :2], probability[3, :2] = (0.4, 0.08), (0.08, 0.4 - 1e-13)
    changes = {
        "selection.lengths": np.array([0, 2, 0, 2]),
        "selection.probability": probability,
    }
    assert "POSTERIOR.LIKELIHOOD_TIE" not in fired(traces["typical"], changes)


def test_likelihood_ends_with_the_accepted_edges(traces: dict[str, Trace], fired: Any) -> None:
    # Path 3 is likelier over one edge; its second edge failed and must not weigh.
    probability = np.zeros((4, 3))
    probability[1, :2], probability[3, :2] = (0.4, 0.4), (0.5, 0.01)
    changes = {
        "selection.lengths": np.array([0, 1, 0, 1]),
        "selection.probability": probability,
    }
    typical = traces["typical"]
    assert "POSTERIOR.LIKELIHOOD_TIE" not in fired(typical, changes)
    other = changes | {"selection.path": np.array(1)}
    assert "POSTERIOR.LIKELIHOOD_TIE" in fired(typical, other)
