"""Each oracle of the posterior contract: silent on a lawful trace, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

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
