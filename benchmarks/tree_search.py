"""Time two searches beside a rescan of the frontier, in one run.

    python benchmarks/tree_search.py [--json]

The rescan is 0x04C as it is written down: each admission looks at the whole frontier. Beside it
stand the reference engine's heap and the oracle's sorting of all paths, which has no frontier. All
search the same made-up calibration, must admit the same paths before a clock starts, and take
turns. What counts is the ratio of the medians; milliseconds are never judged. The greatest tree has
no rescan: its time grows with the square of the nodes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from medusa_oracles.search_plan import derive_search
from medusa_reference_engine.search import SearchStage
from medusa_spec.arrays import RankPath
from medusa_spec.coordinate import Calibration

HEADS, RANKS = 5, 10
SIZES = ((63, 20), (1_023, 5), (65_536, 3))
"""Paths, and turns of each search."""

MOST_RESCANNED = 2_000

Search = Callable[[Calibration], list[RankPath]]


@dataclass(frozen=True)
class Result:
    """One search at one size; `ratio` is how many times as long the rescan took."""

    nodes: int
    search: str
    turns: int
    ms: float
    ratio: float | None


def calibration(nodes: int) -> Calibration:
    """Masses that fall with the rank and with the head; nobody measured them."""
    rows = tuple(
        tuple(0.6 * 0.83**head * 0.37 ** (1 + rank * 0.61) for rank in range(RANKS))
        for head in range(HEADS)
    )
    said = ("none", "none", "none", "greedy")
    return Calibration("incremental", rows, nodes, RANKS, *said, "synthetic")


def rescan(given: Calibration) -> list[RankPath]:
    """The frontier as a mapping, and its heaviest path found anew for each admission."""
    frontier: dict[RankPath, float] = {(rank,): mass for rank, mass in enumerate(given.accuracy[0])}
    admitted: list[RankPath] = []
    while frontier and len(admitted) < given.nodes:
        path = min(frontier, key=lambda path: (-frontier[path], len(path), path))
        weight = frontier.pop(path)
        admitted.append(path)
        if len(path) < len(given.accuracy):
            masses = enumerate(given.accuracy[len(path)])
            frontier |= {(*path, rank): weight * mass for rank, mass in masses}
    return admitted


def heap(given: Calibration) -> list[RankPath]:
    """The reference engine's."""
    return list(SearchStage().search(given).paths)


def sorting(given: Calibration) -> list[RankPath]:
    """The oracle's."""
    return [decision.path for decision in derive_search(given).decisions]


def medians(searches: dict[str, Search], given: Calibration, turns: int) -> dict[str, float]:
    """The median milliseconds of each search, with the collector at rest."""
    spent: dict[str, list[float]] = {name: [] for name in searches}
    gc.collect()
    gc.disable()
    try:
        for _ in range(turns):
            for name, search in searches.items():
                start = time.perf_counter()
                search(given)
                spent[name].append(1e3 * (time.perf_counter() - start))
    finally:
        gc.enable()
    return {name: statistics.median(times) for name, times in spent.items()}


def compare() -> Iterator[Result]:
    """Every search at every size, after all of them admitted the same paths."""
    for nodes, turns in SIZES:
        searches: dict[str, Search] = {"a heap": heap, "sorting": sorting}
        if nodes <= MOST_RESCANNED:
            searches = {"a rescan": rescan, **searches}
        given = calibration(nodes)
        if len({tuple(search(given)) for search in searches.values()}) > 1:
            print(f"tree_search: the searches disagree at {nodes:,} nodes", file=sys.stderr)
            sys.exit(1)
        found = medians(searches, given, turns)
        slow = found.get("a rescan")
        for name, spent in found.items():
            yield Result(nodes, name, turns, spent, None if slow is None else slow / spent)


def table(results: list[Result]) -> Table:
    """The results for a terminal."""
    title = f"Searching a tree for {HEADS} heads of {RANKS} ranks"
    measured = f"measured by `tree_search.py` on {os.cpu_count()} cores, medians of some runs"
    grid = Table(title=f"{title}, {measured}", title_justify="left")
    grid.add_column("nodes", justify="right")
    grid.add_column("by")
    for name in ("ms", "times as fast as a rescan"):
        grid.add_column(name, justify="right")
    for r in results:
        ratio = "–" if r.ratio is None else f"{r.ratio:,.1f}×"
        grid.add_row(f"{r.nodes:,}", r.search, f"{r.ms:,.2f}", ratio)
    return grid


def main() -> None:
    """Measure, then print a table or one JSON document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args()
    results = list(compare())
    if given.json:
        machine = {"platform": platform.platform(), "cores": os.cpu_count()}
        rows = [asdict(result) for result in results]
        print(json.dumps({"machine": machine, "results": rows}, indent=2))
        return
    Console().print(table(results))


if __name__ == "__main__":
    main()
