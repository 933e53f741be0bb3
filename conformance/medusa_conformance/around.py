"""The sections of the contracts around decoding: each in a file of its own, none of a round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from medusa_conformance.checkpoint import checkpoint
from medusa_conformance.claims import claims
from medusa_conformance.cost import cost
from medusa_conformance.exactness import laws, samples
from medusa_conformance.search import search
from medusa_conformance.training import training
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line

AROUND: tuple[tuple[Callable[[Line], Iterator[Trace]], frozenset[str]], ...] = (
    (search, frozenset({"search"})),
    *((section, frozenset({"exactness"})) for section in (laws, samples)),
    (training, frozenset({"training"})),
    (checkpoint, frozenset({"checkpoint"})),
    (cost, frozenset({"cost"})),
    (claims, frozenset({"claims"})),
)
"""Every section, in the order of the contracts, with the one that its traces exercise."""
