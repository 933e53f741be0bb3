"""What a coordinate's tables must be like, and where a round or a draw comes to its edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import medusa_manifests
from medusa_oracles.exactness import derived
from medusa_reference_engine.draws import Seeded, outcomes
from medusa_reference_engine.exactness import ExactnessStage
from medusa_spec.coordinate import Exactness
from medusa_spec.errors import InputError
from medusa_spec.loading import coordinate_from


def document(**changes: Any) -> dict[str, Any]:
    """The document of a manifest, with other values in its `exactness` or the sampling of it."""
    found = medusa_manifests.load("law-row-draw").document()
    found.pop("expected")
    given = found["exactness"]
    inner = {name: changes.pop(name) for name in list(changes) if name in given["sampling"]}
    found["exactness"] = given | {"sampling": given["sampling"] | inner} | changes
    return found


ROW = [1, 1, 1]


@pytest.mark.parametrize(
    ("changes", "field", "rule"),
    [
        ({"model": [ROW, ROW, ROW]}, "exactness.model", "has 3 rows; a start and 3 tokens need 4"),
        ({"model": [ROW, [1, 1], ROW, ROW]}, "exactness.model[1]", "weighs 2 tokens of 3"),
        ({"model": [ROW, ROW, ROW, [0, 0, 0]]}, "exactness.model[3]", "weighs nothing"),
        ({"drafts": [[ROW] * 3]}, "exactness.drafts[0]", "has 3 rows"),
        ({"paths": [[3]]}, "exactness.paths[0]", "rank 3 of [3] is outside [0, TOPK=3)"),
        ({"paths": [[0], [0]]}, "exactness.paths[1]", "[0] occurs twice"),
        ({"paths": [[0, 0]]}, "exactness.paths[0]", "[0, 0] has no ancestor [0]"),
        ({"drafts": []}, "exactness.paths[0]", "[0] has depth 1, and there are 0 heads"),
        ({"temperature": 0}, "exactness.sampling.temperature", "is 0, and 0 is for greedy alone"),
        ({"mode": "greedy"}, "exactness.sampling.temperature", "is 0.5, and 0 is for greedy"),
        ({"temperature": 0.01}, "exactness.sampling.temperature", "above 0 the least is 0.1"),
        ({"mode": "rejection"}, "exactness.paths", "branch, and rejection draws one chain"),
    ],
)
def test_tables_that_do_not_fit_are_refused(changes: Any, field: str, rule: str) -> None:
    with pytest.raises(InputError) as refused:
        coordinate_from(document(**changes), "given")
    assert refused.value.field == field
    assert rule in refused.value.rule


@pytest.mark.parametrize(
    "changes",
    [
        {"length": 0},
        {"length": 5},
        {"samples": 0},
        {"model": [[1] * 5] * 6},
        {"model": [[0.5, 0.5]] * 3},
        {"mode": "beam"},
        {"top_p": 0},
        {"alpha": 1.5},
        {"seed": -1},
    ],
)
def test_tables_of_another_form_are_refused(changes: Any) -> None:
    with pytest.raises(InputError):
        coordinate_from(document(**changes), "given")


def test_a_lawful_document_comes_back_as_it_was() -> None:
    given = document()
    assert coordinate_from(given, "given").document() == given


def test_outcomes_are_all_there_are_with_their_weights() -> None:
    def program(draw: Any) -> tuple[int, ...]:
        first = draw((0.25, 0.0, 0.75))
        return (first,) if first == 0 else (first, draw((0.5, 0.5)))

    assert outcomes(program) == {(0,): 0.25, (2, 0): 0.375, (2, 1): 0.375}
    assert outcomes(lambda draw: draw((0.5, 0.5)) * 0) == {0: 1.0}
    assert outcomes(lambda _: "nothing drawn") == {"nothing drawn": 1.0}


class Planned(Seeded):
    """Draws with the numbers that are given."""

    def __init__(self, *numbers: float) -> None:
        super().__init__(0)
        self._planned = iter(numbers)

    def uniform(self) -> float:
        return next(self._planned)


def test_a_uniform_number_falls_into_its_share() -> None:
    draw = Planned(0.0, 0.2499, 0.25, 0.9999)
    row = (0.25, 0.0, 0.75)
    assert [draw(row) for _ in range(4)] == [0, 0, 2, 2]


def test_what_rounding_leaves_over_goes_to_nothing_impossible() -> None:
    assert Planned(1 - 2**-53)((0.5, 0.5 - 1e-12, 0.0)) == 1


def test_a_seed_gives_more_numbers_than_a_block_holds() -> None:
    one, other = Seeded(7), Seeded(7)
    numbers = [one.uniform() for _ in range(600)]
    assert numbers == [other.uniform() for _ in range(600)]
    assert len(set(numbers)) == 600
    assert all(0 <= number < 1 for number in numbers)


def test_a_rejection_by_rounding_alone_falls_back_on_the_target() -> None:
    """Nothing is left over between equal rows, and something must be drawn all the same."""
    row = [0.1, 0.2, 0.7]
    given = medusa_manifests.load("law-rejection").exactness
    assert given is not None
    assert ExactnessStage().after_rejection(row, row, given.sampling) == row


def test_no_heads_no_paths_and_one_token_are_the_target(
    exactness: Callable[..., Exactness],
) -> None:
    for mode in ("row-draw", "rejection", "nucleus-per-path", "rejection-uncorrected"):
        given = exactness(mode, drafts=(), paths=(), length=1, model=((3, 1), (1, 1), (1, 1)))
        answer = ExactnessStage().law(given)
        assert answer.law.tolist() == pytest.approx([0.75, 0.25])
        assert answer.path_probability is not None
        assert answer.path_probability.shape == (3, 0)
        assert derived(given).law.tolist() == pytest.approx([0.75, 0.25])
        drawn = ExactnessStage().sample(given, 0, 4).tokens
        assert (drawn.shape, drawn.dtype) == ((4, 1), np.dtype(np.int64))
