"""The section that counts: the ledger of the coordinate's workload, and of another one behind.

A section of a `line.Line`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from medusa_conformance.rounds import present
from medusa_spec.coordinate import Workload
from medusa_spec.cost import COUNTS, RATES
from medusa_spec.trace import Trace

if TYPE_CHECKING:
    from medusa_conformance.line import Line


def cost(line: Line) -> Iterator[Trace]:
    """Two ledgers by one engine: as it is declared, and of the same tree with all else otherwise.

    A ledger is that of its workload, so one that is the same for any is found by either. What is
    declared comes first, so that a finding has numbers of the coordinate, where it can.
    """
    planned = line.coordinate.cost
    if planned is None:
        return
    engine = line.engine()
    for workload in (planned, otherwise(planned)):
        seen = engine.cost(workload)
        arrays = present("cost", **{name: getattr(seen, name) for name in (*COUNTS, *RATES)})
        documents: dict[str, Any] = {} if seen.claim is None else {"cost.claim": seen.claim}
        coordinate = replace(line.coordinate, cost=workload, expected={})
        yield line.trace(arrays, documents, coordinate=coordinate)


def otherwise(planned: Workload) -> Workload:
    """A lawful workload of the same tree that every count but that of its paths tells apart."""
    return replace(
        planned,
        prefix=1 if planned.prefix > 1 else 2,
        head_rows="terminal" if planned.head_rows == "all" else "all",
        layers=1 if planned.layers > 1 else 2,
        vocabulary=2 if planned.vocabulary > 2 else 3,
        head_blocks=0 if planned.head_blocks else 1,
        projection="shared" if planned.projection == "independent" else "independent",
        published=1,
        profile=None,
    )
