"""The specification: types, schemas, the invariant registry, and loading of documents."""

from medusa_spec.coordinate import Coordinate, Policy, Release, RetrievalOrder, canonical_order
from medusa_spec.errors import InputError, Refused, Unsupported
from medusa_spec.findings import Finding, Verdict
from medusa_spec.loading import choices_from, coordinate_from, load_coordinate, source_pin
from medusa_spec.registry import CONTRACTS, Invariant, invariants
from medusa_spec.trace import Tolerance, Trace

__version__ = "0.2.0"

__all__ = [
    "CONTRACTS",
    "Coordinate",
    "Finding",
    "InputError",
    "Invariant",
    "Policy",
    "Refused",
    "Release",
    "RetrievalOrder",
    "Tolerance",
    "Trace",
    "Unsupported",
    "Verdict",
    "canonical_order",
    "choices_from",
    "coordinate_from",
    "invariants",
    "load_coordinate",
    "source_pin",
]
