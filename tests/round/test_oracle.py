"""Each oracle of the round contract: silent on a lawful trace, heard on a corrupted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from medusa_oracles import judge
from medusa_oracles.round import derive_chain_acceptance
from medusa_spec import Tolerance, Trace
from medusa_spec.registry import of_contract

PREFIX = (41, 42, 43, 44, 45)
# Plain greedy decoding's choice behind the prefix and each token of the output.
OUTPUT = (11, 22, 31, 5, 0, 17, 9)
V = 48
WITHIN = Tolerance(1e-6, 1e-6, "one dtype")


def _plain(tokens: tuple[int, ...]) -> Any:
    """`[P + S, V]` whose greatest logits are the tokens, one row before each."""
    logits = np.random.default_rng(5).normal(size=(len(PREFIX) + len(tokens), V))
    for place, token in enumerate(tokens):
        logits[len(PREFIX) - 1 + place, token] = 9.0
    return logits


def _drafting(rounds: dict[int, tuple[int, int]]) -> Any:
    """`[2, P + O, V]` of two heads, by the output length behind which they rank drafts first."""
    heads = np.zeros((2, len(PREFIX) + len(OUTPUT), V))
    for written, drafts in rounds.items():
        for head, draft in enumerate(drafts):
            heads[head, len(PREFIX) - 1 + written, draft] = 1.0
    return heads


@pytest.fixture(scope="module")
def trace(coordinate: Any) -> Trace:
    """Seven tokens in three rounds of 3, 3 and 1; a chain that accepts one edge of two, thrice."""
    planned = coordinate()
    plain = _plain(OUTPUT)
    kv = np.random.default_rng(6).normal(size=(2, 2, 1, 12, 4))
    # The first draft is always the target's choice, and the second one never.
    heads = _drafting({0: (22, 30), 2: (5, 30), 4: (17, 30), 6: (30, 30)})
    begun = plain[len(PREFIX) - 1], heads[:, len(PREFIX) - 1]
    arrays = {
        "generation.tokens": np.array(OUTPUT),
        "generation.published": np.array([3, 3, 1]),
        "generation.frontiers": plain[[4, 7, 10]] + 1e-9,
        "generation.plain_logits": plain,
        "generation.asked": np.array(len(OUTPUT)),
        "chain.tokens": np.array(OUTPUT),
        "chain.published": np.array([2, 2, 2, 1]),
        "chain.plain_logits": plain,
        "chain.plain_heads": heads + 1e-9,
        "chain.frontier.target": begun[0],
        "chain.frontier.heads": begun[1],
        "fresh.tokens": np.array(OUTPUT),
        "rounds.tokens": np.array(OUTPUT),
        "rounds.published": np.array([3, 3, 1]),
        "round.visible_kv": kv,
        "round.fresh_kv": kv + 1e-9,
    }
    documents = {"generation.prefix": PREFIX, "chain.path": (0, 0), "round.refused": None}
    return Trace(planned, WITHIN, WITHIN, arrays, documents)


def _at(array: Any, index: Any, value: Any) -> Any:
    changed = array.copy()
    changed[index] = value
    return changed


CASES: dict[str, Callable[[Trace], dict[str, Any]]] = {
    # The second round begins with the logits that the first began with.
    "ROUND.FRONTIER_FEEDS_NEXT": lambda t: {
        "generation.frontiers": t["generation.frontiers"][[0, 0, 2]]
    },
    # One visible row is another branch's.
    "ROUND.CACHE_MATCHES_TOKENS": lambda t: {
        "round.visible_kv": _at(t["round.visible_kv"], (..., 9, slice(None)), 0.5)
    },
    "ROUND.PROGRESS": lambda t: {"generation.published": np.array([3, 0, 4])},
    "ROUND.GREEDY_EQUALS_PLAIN": lambda t: {"generation.tokens": _at(t["generation.tokens"], 3, 6)},
    "ROUND.TREE_INDEPENDENT": lambda t: {"chain.tokens": _at(t["chain.tokens"], 6, 6)},
    "ROUND.SUPERSET_NEVER_SHORTER": lambda _: {"generation.published": np.array([1, 3, 3])},
    # The chain accepts a draft that the target did not choose.
    "ROUND.CHAIN_IS_CHAIN": lambda _: {"chain.published": np.array([3, 2, 2])},
    # Head 1 answers for another row.
    "ROUND.PREFILL_FRONTIER": lambda t: {
        "chain.frontier.heads": _at(t["chain.frontier.heads"], 1, 0.25)
    },
    # The stages publish the same tokens in other rounds.
    "ROUND.GENERATION_IS_ROUNDS": lambda _: {"rounds.published": np.array([3, 2, 2])},
    "ROUND.RESTARTABLE": lambda t: {"fresh.tokens": _at(t["fresh.tokens"], 0, 12)},
    "ROUND.LAWFUL_NEVER_REFUSED": lambda _: {"round.refused": "no room"},
}


def test_every_invariant_has_a_case() -> None:
    assert set(CASES) == {invariant.code for invariant in of_contract("round")}


@pytest.mark.parametrize("code", CASES)
def test_oracle(code: str, trace: Trace, prove: Any) -> None:
    prove(code, trace, CASES[code](trace))


def test_rounds_that_do_not_say_what_they_began_with(trace: Trace, fired: Any) -> None:
    none = {"generation.frontiers": np.zeros((0, V))}
    assert fired(trace, none) == {"ROUND.FRONTIER_FEEDS_NEXT"}


@pytest.mark.parametrize("token", [-1, V, 10**6])
def test_what_is_no_token_is_never_output(token: int, trace: Trace, fired: Any) -> None:
    published = _at(trace["generation.tokens"], 2, token)
    assert "ROUND.GREEDY_EQUALS_PLAIN" in fired(trace, {"generation.tokens": published})


@pytest.mark.parametrize(("gap", "heard"), [(1e-7, False), (1e-2, True)])
def test_rounding_decides_nothing(gap: float, heard: bool, trace: Trace, fired: Any) -> None:
    # Token 6 is all but the choice at the fourth place.
    plain = _at(trace["generation.plain_logits"], (len(PREFIX) + 2, 6), 9.0 - gap)
    tokens = _at(trace["generation.tokens"], 3, 6)
    changes = {"generation.plain_logits": plain, "generation.tokens": tokens}
    changes["generation.frontiers"] = plain[[4, 7, 10]]
    outputs = {"TREE_INDEPENDENT", "RESTARTABLE", "GENERATION_IS_ROUNDS", "GREEDY_EQUALS_PLAIN"}
    expected = {f"ROUND.{name}" for name in outputs} if heard else set()
    assert fired(trace, changes) == expected


@pytest.mark.parametrize(("asked", "heard"), [(7, set()), (9, set()), (6, {"ROUND.PROGRESS"})])
def test_an_end_of_sequence_may_end_early(
    asked: int, heard: set[str], trace: Trace, fired: Any
) -> None:
    ended = replace(trace, coordinate=replace(trace.coordinate, end_of_sequence=OUTPUT[-1]))
    assert fired(ended, {"generation.asked": np.array(asked)}) == heard


def test_nothing_is_decoded_behind_the_end(trace: Trace, fired: Any) -> None:
    ended = replace(trace, coordinate=replace(trace.coordinate, end_of_sequence=OUTPUT[3]))
    assert fired(ended, {}) == {"COMMIT.END_OF_SEQUENCE", "ROUND.GREEDY_EQUALS_PLAIN"}


def test_more_than_was_asked_for_is_found_in_the_tokens_alone(trace: Trace, fired: Any) -> None:
    bare = {k: v for k, v in trace.arrays.items() if k != "generation.published"}
    more = replace(trace, arrays=bare)
    assert "ROUND.PROGRESS" in fired(more, {"generation.asked": np.array(len(OUTPUT) - 1)})


def test_a_short_plain_pass_proves_no_chain_wrong(trace: Trace, fired: Any) -> None:
    # One token was asked for, and the plain pass ends before the second draft is judged.
    heads = _drafting({0: (22, 31), 3: (0, 17), 6: (30, 30)})
    short = {
        "chain.plain_logits": trace["chain.plain_logits"][: len(PREFIX) + 1],
        "chain.frontier.heads": heads[:, len(PREFIX) - 1],
        "chain.plain_heads": heads,
        "chain.published": np.array([3, 3, 1]),
    }
    assert fired(trace, short) == set()
    whole = short | {"chain.plain_logits": trace["chain.plain_logits"]}
    assert fired(trace, whole) == set()
    too_many = whole | {"chain.published": np.array([4, 3])}
    assert "ROUND.CHAIN_IS_CHAIN" in fired(trace, too_many)


def test_a_chain_is_followed_into_later_rounds(trace: Trace, fired: Any) -> None:
    # From its second round on, the heads' drafts are no longer the last row's.
    stale = {"chain.published": np.array([2, 1, 1, 1, 1, 1])}
    assert fired(trace, stale) == {"ROUND.CHAIN_IS_CHAIN"}


def test_ranks_that_rounding_could_exchange_prove_nothing(trace: Trace, fired: Any) -> None:
    heads = trace["chain.plain_heads"]
    near = _at(heads, (0, len(PREFIX) + 1, 6), 1.0 - 1e-7)
    changes = {"chain.plain_heads": near, "chain.published": np.array([2, 1, 2, 2])}
    assert "ROUND.CHAIN_IS_CHAIN" not in fired(trace, changes)


@pytest.mark.parametrize("published", [[3, 3, 1, 1], [3, 3], [3, 1003, 1]])
def test_the_last_round_is_the_one_that_reaches_the_end(
    published: list[int], trace: Trace, fired: Any
) -> None:
    frontiers = np.resize(trace["generation.frontiers"], (len(published), V))
    changes = {"generation.published": np.array(published), "generation.frontiers": frontiers}
    assert "ROUND.PROGRESS" in fired(trace, changes)


@pytest.mark.parametrize(
    ("drafts", "accepted"),
    [([], 0), ([22], 1), ([22, 30], 1), ([21, 31], 0), ([22, 31, 5, 1], 3), ([21, 22, 31], 0)],
)
def test_sequential_verifier(drafts: list[int], accepted: int) -> None:
    # By definition: one draft after another, each against the choice behind those before it.
    leading = 0
    for draft, choice in zip(drafts, OUTPUT[1:], strict=False):
        if draft != choice:
            break
        leading += 1
    assert leading == accepted
    assert derive_chain_acceptance(drafts, _plain(OUTPUT), len(PREFIX)) == accepted


HALF = Tolerance(0.12, 0.05, "eight significant bits")
BY_TOKENS = {
    f"ROUND.{name}"
    for name in (
        "TREE_INDEPENDENT",
        "SUPERSET_NEVER_SHORTER",
        "RESTARTABLE",
        "GENERATION_IS_ROUNDS",
    )
}


def _black_box(trace: Trace) -> Trace:
    """What an engine shows that has no plain pass."""
    shown = {k: v for k, v in trace.arrays.items() if "plain" not in k and "frontier" not in k}
    return replace(trace, arrays=shown)


def test_tokens_alone_are_compared_where_no_plain_logits_are_shown(trace: Trace) -> None:
    bare = _black_box(trace)
    assert set(judge(bare).executed) >= BY_TOKENS
    assert judge(bare).findings == ()


@pytest.mark.parametrize("code", sorted(BY_TOKENS))
def test_a_breach_is_seen_in_tokens_alone(code: str, trace: Trace, fired: Any) -> None:
    assert code in fired(_black_box(trace), CASES[code](trace))


def test_tokens_of_a_half_type_prove_nothing_alone(trace: Trace, fired: Any) -> None:
    half = replace(trace, tolerance=HALF)
    assert set(judge(half).executed) >= BY_TOKENS
    assert not BY_TOKENS & set(judge(_black_box(half)).executed)
    for code in BY_TOKENS:
        assert code not in fired(_black_box(half), CASES[code](trace))


def test_logits_with_which_any_agree_prove_nothing(trace: Trace) -> None:
    names = [name for name, array in trace.arrays.items() if array.dtype.kind == "f"]
    faint = {name: 0.02 * trace[name] for name in names}
    judgement = judge(replace(trace, arrays={**trace.arrays, **faint}, tolerance=HALF))
    assert judgement.findings == ()
    silent = {"FRONTIER_FEEDS_NEXT", "CACHE_MATCHES_TOKENS", "GREEDY_EQUALS_PLAIN"}
    silent |= {"TREE_INDEPENDENT", "SUPERSET_NEVER_SHORTER", "CHAIN_IS_CHAIN", "RESTARTABLE"}
    silent |= {"PREFILL_FRONTIER"}
    assert {f"ROUND.{name}" for name in silent} & set(judgement.executed) == set()
    exact = judge(replace(trace, arrays={**trace.arrays, **faint}))
    assert {f"ROUND.{name}" for name in silent} <= set(exact.executed)


def test_a_faint_cache_is_judged_where_it_is_broken(trace: Trace, fired: Any) -> None:
    faint = {name: 0.02 * trace[name] for name in ("round.visible_kv", "round.fresh_kv")}
    half = replace(trace, arrays={**trace.arrays, **faint}, tolerance=HALF)
    broken = {"round.visible_kv": _at(half["round.visible_kv"], (..., 9, 0), 0.5)}
    assert fired(half, broken) == {"ROUND.CACHE_MATCHES_TOKENS"}


def test_a_first_frontier_of_heads_that_say_the_same_proves_nothing(trace: Trace) -> None:
    names = ("chain.plain_heads", "chain.frontier.heads")
    alike = {name: np.repeat(trace[name][:1], 2, axis=0) for name in names}
    judgement = judge(replace(trace, arrays={**trace.arrays, **alike}))
    assert "ROUND.PREFILL_FRONTIER" not in judgement.executed
    assert "ROUND.PREFILL_FRONTIER" in judge(trace).executed
