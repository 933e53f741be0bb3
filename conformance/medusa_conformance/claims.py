"""The section that publishes: no facts at all, and behind them the coordinate's own.

A section of a `line.Line`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from medusa_conformance.rounds import present
from medusa_spec.claims import Facts
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line

DOCUMENTS = ("figures", "policies", "lineage", "scope")
"""Fields of the claims that are no arrays."""


def claims(line: Line) -> Iterator[Trace]:
    """Two publications by one engine: who publishes the same of any facts is found by either."""
    facts = line.coordinate.claims
    if facts is None:
        return
    engine = line.engine()
    for given in (Facts((), ()), facts):
        seen = engine.publish_claims(given)
        shown = {f"claims.{name}": getattr(seen, name) for name in DOCUMENTS}
        documents: dict[str, Any] = {name: v for name, v in shown.items() if v is not None}
        coordinate = replace(line.coordinate, claims=given, expected={})
        yield line.trace(present("claims", batch=seen.batch), documents, coordinate=coordinate)
