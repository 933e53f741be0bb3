"""An engine may answer with anything: it is read for what it is, or it is a finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from medusa_spec.stages import Frontier, TreeBuffers, answer_of, arrays_of

ODD: dict[str, Any] = {
    "a batch axis": lambda array: array[None],
    "flattened": lambda array: array.reshape(-1)[:0],
    "one number": lambda _: np.asarray(1.5),
    "objects": lambda array: np.full(array.shape, "x", object),
    "text": lambda _: "text",
    "nothing": lambda _: None,
}


@pytest.fixture(scope="module", params=["greedy", "fast-typical"])
def trace(request: Any, coordinate: Any, lawful_trace: Any, literal: Any) -> Any:
    return lawful_trace(coordinate(mode=request.param), literal, ((0, 2), (2, 6)))


@pytest.mark.parametrize("form", ODD)
def test_another_form_is_a_finding_and_never_an_error(form: str, trace: Any, fired: Any) -> None:
    observed = [name for name in trace.arrays if not name.startswith(("plain", "frontier"))]
    assert len(observed) > 20
    for name in observed:
        assert fired(trace, {name: ODD[form](trace[name])}), name


@pytest.mark.parametrize("label", [None, "greedy-exact", 3, ["claim"]])
def test_a_label_of_another_form_is_a_finding(label: Any, trace: Any, fired: Any) -> None:
    assert "POSTERIOR.EXACT_LABEL" in fired(trace, {"selection.label": label})


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("tree.mask", "TREE.MASK_IS_ANCESTRY"),
        ("verification.mask", "VERIFICATION.RECTANGULAR_MASK"),
    ],
)
@pytest.mark.parametrize("seen", [np.nan, np.inf])
def test_a_mask_that_is_no_number_where_it_shows_is_a_finding(
    name: str, code: str, seen: float, trace: Any, fired: Any
) -> None:
    mask = trace[name]
    assert not fired(trace, {name: mask.astype(np.float32)})
    # As `(1 - mask) * -inf` makes it.
    assert code in fired(trace, {name: np.where(mask, seen, 0.0)})
    everywhere = mask.astype(np.float64)
    everywhere[0, 0] = seen
    assert code in fired(trace, {name: everywhere})


@dataclass(frozen=True, slots=True)
class Answer:
    rows: Any
    inner: Any = None


@pytest.mark.parametrize(
    ("given", "kind"),
    [([1, 2], "i"), ([[True], [False]], "b"), (np.int64(4), "i"), (np.float32(0.5), "f"), (4, "i")],
)
def test_lists_and_numbers_of_any_library_are_arrays(given: Any, kind: str) -> None:
    found = arrays_of("stage", Answer(given, Answer(given)))
    assert found.keys() == {"stage.rows", "stage.inner.rows"}
    assert all(array.dtype.kind == kind for array in found.values())
    assert all(np.array_equal(array, given) for array in found.values())


def test_nothing_and_the_paths_of_rows_are_no_arrays() -> None:
    assert arrays_of("stage", Answer(None, ((), (0,)))) == {}


@pytest.mark.parametrize("given", [[[1], [1, 2]], "text", {"a": 1}, [None], 1j])
def test_what_is_no_array_of_numbers_is_not_left_out_in_silence(given: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        arrays_of("stage", Answer(given))


@pytest.mark.parametrize(
    ("kind", "answer", "said"),
    [
        (TreeBuffers, {"slot": [0, 1]}, "'slot' is no field of TreeBuffers; the nearest is slots"),
        (Frontier, {"target": [0.0], "head": []}, "'head' is no field of Frontier; .* heads"),
        (Frontier, {"target": [0.0], 3: 4}, "3 is no field of Frontier"),
        (Frontier, {"target": [0.0], "x" * 10**6: 4}, "x' is no field|xxx is no field"),
    ],
)
def test_a_misspelt_field_is_never_dropped(kind: type, answer: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said) as raised:
        answer_of(kind, answer)
    assert len(str(raised.value)) < 200


def test_an_object_may_have_more_than_is_read() -> None:
    assert answer_of(TreeBuffers, np.recarray((1,), [("slots", "i8"), ("more", "i8")])).slots == 0
