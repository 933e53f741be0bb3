"""The worked numbers of the article, typed from it, against the literal formulas."""

from __future__ import annotations

import math
from types import ModuleType

import pytest

import medusa_manifests

PATHS = [[0], [1], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
HEADS = [list(range(21, 31)), list(range(31, 41))]


@pytest.fixture
def buffers(literal: ModuleType) -> dict[str, list]:
    return literal.tree(PATHS, 10, "canonical", -1)


@pytest.fixture
def candidates(literal: ModuleType, buffers: dict[str, list]) -> list[list[int]]:
    packed = literal.packed_tokens(PATHS, 11, HEADS)
    return literal.candidates(buffers["retrieve_indices"], packed, -1)


def surface(literal: ModuleType, name: str, buffers: dict[str, list]):
    coordinate = medusa_manifests.load(name)
    judged = {
        row.path: literal.distribution(row.probabilities, row.rest, 128)
        for row in coordinate.posterior
    }
    return judged, literal.path_logits(PATHS, buffers["retrieve_indices"], judged)


def test_head_one_slots_occur_twice(buffers):  # 0x04A
    assert [buffers["tree_indices"].count(slot) for slot in (11, 12, 13)] == [2, 2, 2]


def test_slots_and_rows_of_the_toy(literal, buffers):  # 0x01A, 0x01B
    assert buffers["tree_indices"] == [0, 1, 2, 11, 12, 13, 11, 12, 13]
    assert literal.packed_tokens(PATHS, 11, HEADS) == [11, 21, 22, 31, 32, 33, 31, 32, 33]


def test_six_node_mask(literal):  # 0x03B
    # root, A, B, A1, A2, B1; A1 sees A, and neither B nor A2 nor B1.
    tree = literal.tree([[0], [1], [0, 0], [0, 1], [1, 0]], 10, "canonical", -1)
    assert tree["attention_mask"] == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 0, 1, 0, 0, 1],
    ]
    assert tree["position_ids"] == [0, 1, 1, 2, 2, 2]


def test_verification_round(buffers):  # 0x03F
    assert [5 + depth for depth in buffers["position_ids"]] == [5, 6, 6, 7, 7, 7, 7, 7, 7]
    assert [5 + row for row in range(9)] == list(range(5, 14))
    assert len(buffers["retrieve_indices"]) == 6


def test_only_one_path_matches_two_edges(literal, buffers, candidates):  # 0x03F
    _, logits = surface(literal, "verification-p5", buffers)
    full = [
        tokens
        for tokens, rows in zip(candidates, logits, strict=True)
        if literal.greedy_passes(tokens, rows) == [True, True]
    ]
    assert full == [[11, 21, 31]]


def test_greedy_winner(literal, buffers, candidates):  # 0x04G
    _, logits = surface(literal, "posterior-greedy", buffers)
    index, accepted = literal.greedy(candidates, logits)
    assert (candidates[index], accepted) == ([11, 21, 31], 2)


def test_fast_typical_winner(literal, buffers, candidates):  # 0x04G
    policy = medusa_manifests.load("posterior-fast-typical").policy
    assert (policy.epsilon, policy.alpha, policy.entropy_guard) == (0.09, 0.3, 1e-5)
    _, logits = surface(literal, "posterior-fast-typical", buffers)
    index, accepted = literal.fast_typical(candidates, logits, policy)
    assert (candidates[index], accepted) == ([11, 22, 31], 2)


def test_the_typical_winner_is_decided_by_likelihood(literal, buffers):
    judged, _ = surface(literal, "posterior-fast-typical", buffers)
    root, first, second = judged[()], judged[(0,)], judged[(1,)]
    for row in (root, first, second):
        assert math.isclose(sum(row), 1)
    # Both paths pass twice, so the greater product decides, and the greater sum would err.
    taken = math.log(root[22]) + math.log(second[31])
    left = math.log(root[21]) + math.log(first[31])
    assert taken > left
    assert root[22] + second[31] < root[21] + first[31]


def test_every_wrong_policy_would_take_the_other_path(literal, buffers):
    judged, _ = surface(literal, "posterior-fast-typical", buffers)
    row = judged[(1,)]
    entropy = -sum(p * math.log(p + 1e-5) for p in row)
    right = min(0.09, 0.3 * math.exp(-entropy))
    assert right < row[31]
    # A maximum, or an entropy of the wrong sign, ends both paths after their first edge.
    for wrong in (max(0.09, 0.3 * math.exp(-entropy)), min(0.09, 0.3 * math.exp(entropy))):
        assert judged[(0,)][31] < wrong
        assert row[31] < wrong < judged[()][22] < judged[()][21]


def test_a_round_without_a_match_publishes_its_root(literal, buffers, candidates):  # 0x04G
    judged = {path: literal.distribution({99: 0.99}, 0.01, 128) for path in [(), (0,), (1,)]}
    logits = literal.path_logits(PATHS, buffers["retrieve_indices"], judged)
    policy = medusa_manifests.load("posterior-fast-typical").policy
    assert literal.greedy(candidates, logits) == (0, 0)
    assert literal.fast_typical(candidates, logits, policy) == (0, 0)
    commit = literal.commit(5, buffers["retrieve_indices"][0], candidates[0], 0)
    assert commit["tokens"] == [11]


def test_commit_trace(literal, buffers):  # 0x06B
    winner = buffers["retrieve_indices"].index([0, 2, 6])
    assert literal.commit(5, buffers["retrieve_indices"][winner], [11, 22, 31], 2) == {
        "tokens": [11, 22, 31],
        "source": [5, 7, 11],
        "destination": [5, 6, 7],
        "length": 8,
        "frontier_row": 6,
    }


def test_the_trace_s_path_four_is_a_count_from_one(literal):  # 0x06B
    # Its leaf is (1, 0): the fourth in canonical order, the third in the pinned one.
    assert literal.leaves(PATHS, "canonical").index((1, 0)) == 3
    assert literal.leaves(PATHS, "pinned").index((1, 0)) == 2


def test_nothing_after_an_end_of_sequence_is_published(literal):
    commit = literal.commit(5, [0, 2, 6], [11, 22, 31], 2, end_of_sequence=22)
    assert commit == {
        "tokens": [11, 22],
        "source": [5, 7],
        "destination": [5, 6],
        "length": 7,
        "frontier_row": 2,
    }


def test_padding_is_never_accepted(literal):
    # The sentinel would be the last token of the vocabulary if it were an index.
    judged = {(): literal.distribution({127: 0.9}, 0.1, 128)}
    logits = literal.path_logits([[0]], [[0, -1]], judged)
    policy = medusa_manifests.load("posterior-fast-typical").policy
    assert literal.greedy([[11, -1]], logits) == (0, 0)
    assert literal.fast_typical([[11, -1]], logits, policy) == (0, 0)


def test_regular_branching_counts_twenty_one(literal):  # 0x02C
    coordinate = medusa_manifests.load("regular-3-2-2")
    depths = coordinate.expected["position_ids"]
    assert [depths.count(depth) for depth in (1, 2, 3)] == [3, 6, 12]
    assert coordinate.branching == (3, 2, 2)
    assert len(depths) - 1 == 21
