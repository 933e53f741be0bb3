"""What the tests of mutants share: the small frozen coordinates, and one thread for torch."""

from __future__ import annotations

import pytest
import torch

from medusa_conformance.runner import frozen_coordinates, is_small
from medusa_spec import Coordinate


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    # Tiny matrices: a second thread only waits, and fights other test processes.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def small_coordinates() -> list[Coordinate]:
    """The frozen coordinates that mutants are shown, in the order in which most die soonest.

    Trees that have all there is to corrupt come first, the small ones among them before others.
    """
    small = [coordinate for coordinate in frozen_coordinates() if is_small(coordinate)]
    return sorted(small, key=lambda coordinate: (coordinate.nodes < 5, coordinate.nodes))
