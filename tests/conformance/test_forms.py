"""Lawful forms and the canonical ones, written out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from medusa_conformance.forms import (
    Order,
    branching_of,
    canonical_slots,
    canonical_table,
    leaves_of,
    narrowed,
    retrieval_order,
    row_order,
    tree_mask,
)
from medusa_spec.dialect import Dialect
from medusa_spec.errors import Unsupported

# Rows: root, (0), (1), (0,0).
PATHS = ((), (0,), (1,), (0, 0))
MASK = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], np.bool_)
FAR = -1e9

MASKS: list[tuple[dict[str, Any], Any]] = [
    ({}, MASK.astype(np.float32)),
    ({"mask": "additive"}, np.where(MASK, 0.0, FAR)),
    ({"mask": "additive"}, np.where(MASK, 0.0, -np.inf)[None, None]),
    # Row 3 sees rows 0, 1 and 3: bits of 1, 2 and 8.
    ({"mask": "packed8"}, np.array([[1], [3], [5], [11]], np.uint8)),
    ({"mask": "packed8"}, np.array([1, 3, 5, 11], np.uint8)),
    ({"mask": "packed64"}, np.array([[1], [3], [5], [11]], np.int64)),
    ({"mask_root": "absent"}, MASK[1:, 1:]),
    ({"mask": "packed32", "mask_root": "absent"}, np.array([[1], [2], [5]], np.uint32)),
    ({"mask": "additive", "mask_root": "absent"}, np.where(MASK[1:, 1:], 0.0, FAR)),
]


@pytest.mark.parametrize(("form", "given"), MASKS)
def test_every_form_of_a_mask_is_the_same_mask(form: dict[str, Any], given: Any) -> None:
    assert (tree_mask(given, Dialect(**form), 4) == MASK).all()


def test_words_hold_more_rows_than_they_have_bits() -> None:
    # Ten rows, each of which sees itself: the last two stand in a second word.
    rows = np.arange(10)
    words = np.zeros((10, 2), np.uint8)
    words[rows, rows // 8] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2]
    assert (tree_mask(words, Dialect(mask="packed8"), 10) == np.eye(10, dtype=bool)).all()


def test_the_highest_bit_of_a_signed_word_is_a_row_like_any_other() -> None:
    word = np.array([[-(2**63)]], np.int64)
    assert np.flatnonzero(tree_mask(word, Dialect(mask="packed64"), 64)).tolist() == [63]


@pytest.mark.parametrize(
    ("form", "given"),
    [
        ({"mask_root": "absent"}, np.zeros((0, 0))),
        ({"mask_root": "absent"}, np.zeros(0)),
        ({"mask": "packed32", "mask_root": "absent"}, np.zeros((0, 1), np.uint32)),
        ({"mask": "packed8"}, np.ones((1, 1), np.uint8)),
        ({"mask": "additive"}, np.zeros((1, 1))),
    ],
)
def test_a_root_alone_sees_itself(form: dict[str, Any], given: Any) -> None:
    assert tree_mask(given, Dialect(**form), 1).tolist() == [[True]]


@pytest.mark.parametrize("form", [{"mask_root": "absent"}, {"mask": "additive"}])
def test_a_mask_of_another_form_does_not_come_out_right(form: dict[str, Any]) -> None:
    found = tree_mask(MASK, Dialect(**form), 4)
    assert found.shape != MASK.shape or (found != MASK).any()


@pytest.mark.parametrize("odd", [np.nan, -5.0, 1.0, np.inf])
def test_what_neither_shows_nor_hides_stays_neither(odd: float) -> None:
    found = tree_mask(np.array([[0.0, odd, -np.inf]]), Dialect(mask="additive"), 3)
    assert np.array_equal(found, [[1.0, np.nan, 0.0]], equal_nan=True)
    whole = tree_mask(np.array([[odd]]), Dialect(mask="additive", mask_root="absent"), 2)
    assert np.array_equal(whole, [[1.0, 0.0], [1.0, np.nan]], equal_nan=True)


@pytest.mark.parametrize("form", ["boolean", "additive", "packed8", "packed32", "packed64"])
@pytest.mark.parametrize("root", ["present", "absent"])
@pytest.mark.parametrize(
    "given", [np.zeros((2, 3, 4)), np.zeros(()), np.full((2, 2), np.nan), np.zeros((0, 3))]
)
def test_no_mask_is_too_odd_to_be_handed_on(form: Any, root: Any, given: Any) -> None:
    assert tree_mask(given, Dialect(mask=form, mask_root=root), 4).shape != (4, 4)


def test_slots_ten_apart_as_slots_of_topk() -> None:
    # TOPK 3: ranks 0 to 2 of head 0 are slots 1 to 3, of head 1 slots 4 to 6.
    assert canonical_slots(np.array([0, 1, 3, 11, 13]), 10, 3).tolist() == [0, 1, 3, 4, 6]


def test_a_slot_behind_the_ranks_is_nobodys() -> None:
    # Rank 3 of head 0 would be canonical slot 4, rank 0 of head 1, which lies elsewhere here.
    assert canonical_slots(np.array([0, 4, 10]), 10, 3).tolist() == [0, -4, -10]
    assert canonical_slots(np.array([0.5, 4.0]), 10, 3).tolist() == [0.5, 4.0]


def test_a_table_ten_apart_as_a_table_of_topk() -> None:
    table = np.array([7, *range(100, 110), *range(200, 210)])
    assert canonical_table(table, 10, 2).tolist() == [7, 100, 101, 200, 201]
    assert canonical_table(np.array([7]), 10, 2).tolist() == [7]


@pytest.mark.parametrize("length", [0, 5, 12, 22])
def test_a_table_of_another_stride_has_another_number_of_slots(length: int) -> None:
    # Two heads of TOPK 2: five slots canonically, and twenty-one ten apart.
    assert len(canonical_table(np.arange(length), 10, 2)) != 5


def test_branching_factors_of_regular_trees_alone() -> None:
    assert branching_of([(0,), (1,), (0, 0), (1, 0)]) == (2, 1)
    assert branching_of([]) == ()
    for irregular in ([(1,)], [(0,), (1,), (0, 0)], [(0,), (0, 0), (0, 2)]):
        with pytest.raises(Unsupported, match="no branching factors"):
            branching_of(irregular)


def test_leaves_are_the_paths_that_no_path_goes_on_from() -> None:
    assert leaves_of([(0, 0), (1,), (0,)]) == ((0, 0), (1,))
    assert leaves_of([]) == ()


def test_rows_and_paths_by_their_own_numbers() -> None:
    own = ((), (0,), (0, 0), (1,))
    rows = row_order(own, PATHS)
    assert rows.tolist() == [0, 1, 3, 2]
    order = Order(rows, np.arange(2))
    assert order.back.tolist() == [0, 1, 3, 2]
    # Behind five committed rows; those that are none of the tree's stay what they are.
    assert order.physical(np.array([5, 7, 8, 4, 9]), 5).tolist() == [5, 8, 7, 4, 9]
    assert row_order(None, PATHS).tolist() == row_order(own[:3], PATHS).tolist() == [0, 1, 2, 3]


def test_retrieval_rows_are_known_by_what_they_hold() -> None:
    canonical = np.array([[0, 2, -1], [0, 1, 3]])
    own = np.array([[0, 1, 3, -2], [0, 2, -2, -2]])
    assert retrieval_order(own, canonical).tolist() == [1, 0]
    assert retrieval_order(own[:1], canonical).tolist() == [0]
    assert retrieval_order(np.array([0, 1]), canonical).tolist() == [0, 1]


def test_only_padding_is_taken_off() -> None:
    assert narrowed(np.array([[0, 1, -1], [0, 2, -2]]), 2).tolist() == [[0, 1], [0, 2]]
    assert narrowed(np.array([[5, 6, 0]]), 2, pad_token=0).tolist() == [[5, 6]]
    for kept in (np.array([[5, 6, 0]]), np.array([[5]]), np.array([5, 6, -1])):
        assert narrowed(kept, 2).tolist() == kept.tolist()
