"""Time the tree oracle beside its peers, in one run.

    python benchmarks/tree_build.py [--checkout DIR] [--json]

The peers are the literal formula, written out below, and, where a checkout of the pinned release
is given, that release's own builder. All get the same list of paths in the same shuffled order,
must agree before a clock starts, and each is timed in turns with ours: a slow moment of the
machine then falls on both. What counts is the ratio of the medians; milliseconds are never judged.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib.util
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from rich.console import Console
from rich.table import Table

from medusa_oracles.tree import derive_tree
from medusa_spec import source_pin
from medusa_spec.stages import TreeBuffers

TOPK, HEADS = 10, 5
"""The pinned builder knows no other TOPK; five heads leave 111,110 paths to draw from."""

SENTINEL = -1
PINNED = "the pinned builder"
BUILDER = "medusa/model/utils.py"
"""The pinned file that is loaded; it imports torch and nothing of its own repository."""

SIZES = ((63, 10, 15, 20), (1_023, 40, 7, 3), (4_095, 100, 5, 1))
"""Paths, the least ratio to the pinned builder, turns of each builder, and calls in a turn."""

Paths = list[list[int]]
Builder = Callable[[Paths], Any]


@dataclass(frozen=True)
class Result:
    """One peer at one size; `floor` is the least ratio asked for, where one is."""

    nodes: int
    peer: str
    turns: int
    calls: int
    ours_ms: float
    peer_ms: float
    ratio: float
    floor: int | None
    met: bool | None


def random_tree(nodes: int, seed: int) -> Paths:
    """A prefix-closed set of `nodes` paths, grown one random frontier path at a time."""
    draw = random.Random(seed)
    chosen: Paths = []
    frontier = [[rank] for rank in range(TOPK)]
    while len(chosen) < nodes:
        path = frontier.pop(draw.randrange(len(frontier)))
        chosen.append(path)
        if len(path) < HEADS:
            frontier.extend([*path, rank] for rank in range(TOPK))
    draw.shuffle(chosen)
    return chosen


def literal(paths: Paths) -> TreeBuffers:
    """The formula of every buffer as it is written down, row by row and entry by entry."""
    rows = [(), *sorted((tuple(path) for path in paths), key=lambda p: (len(p), p))]
    mask = [[u[: len(v)] == v for v in rows] for u in rows]
    slots = [1 + (len(u) - 1) * TOPK + u[-1] if u else 0 for u in rows]
    depths = [len(u) for u in rows]
    maximal = [u for u in rows if not any(v[: len(u)] == u and v != u for v in rows)]
    retrieval = [
        [rows.index(u[:d]) if d <= len(u) else SENTINEL for d in range(max(depths) + 1)]
        for u in reversed(maximal)
    ]
    return TreeBuffers(
        tuple(rows), np.array(slots), np.array(mask), np.array(depths), np.array(retrieval)
    )


def ours(paths: Paths) -> TreeBuffers:
    """The oracle's derivation, in the pinned release's retrieval order."""
    return derive_tree(paths, TOPK, "pinned", SENTINEL)


def pinned_builder(checkout: Path) -> Builder:
    """The pinned release's builder, from a file whose hash is the pin's, or else refused."""
    file = checkout / BUILDER
    if not file.is_file():
        refuse(f"{file}: no such file")
    expected = source_pin()["files"][BUILDER]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != expected:
        refuse(f"{file}: SHA-256 {digest[:12]}… is not the pinned {expected[:12]}…")
    spec = importlib.util.spec_from_file_location("pinned_builder", file)
    if spec is None or spec.loader is None:
        refuse(f"{file}: cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.TOPK != TOPK:
        refuse(f"{file}: TOPK is {module.TOPK}, and the trees here are drawn for {TOPK}")
    import torch

    # The oracle runs on one thread, so torch gets no more.
    torch.set_num_threads(1)
    return lambda paths: module.generate_medusa_buffers(paths, device="cpu")


def refuse(reason: str) -> NoReturn:
    """End with one line and the exit code of a usage error."""
    print(f"tree_build: {reason}", file=sys.stderr)
    sys.exit(3)


def agree(expected: TreeBuffers, found: Any) -> bool:
    """Whether two builders gave the same slots, depths, mask and retrieval."""
    if isinstance(found, TreeBuffers):
        other = (found.slots, found.depths, found.mask, found.retrieval)
    else:
        names = ("tree_indices", "medusa_position_ids", "medusa_attn_mask", "retrieve_indices")
        other = tuple(found[name].numpy() for name in names)
    mine = (expected.slots, expected.depths, expected.mask, expected.retrieval)
    # The pinned mask carries two axes of length one in front.
    return all(
        a.size == b.size and bool((a == b.reshape(a.shape)).all())
        for a, b in zip(mine, other, strict=True)
    )


def medians(peer: Builder, paths: Paths, turns: int, calls: int) -> tuple[float, float]:
    """The median milliseconds of one call of ours and of the peer's, with the collector at rest.

    A turn makes several calls where they are short, or ours would pay, each time, for the caches
    that the longer peer has just emptied.
    """
    spent: dict[Builder, list[float]] = {ours: [], peer: []}
    gc.collect()
    gc.disable()
    try:
        for _ in range(turns):
            for build, times in spent.items():
                start = time.perf_counter()
                for _ in range(calls):
                    build(paths)
                times.append(1e3 * (time.perf_counter() - start) / calls)
    finally:
        gc.enable()
    return statistics.median(spent[ours]), statistics.median(spent[peer])


def compare(peers: dict[str, Builder], seed: int) -> Iterator[Result]:
    """Every peer at every size, after it gave the same buffers as the oracle."""
    for nodes, floor, turns, calls in SIZES:
        paths = random_tree(nodes, seed)
        expected = ours(paths)
        for name, build in peers.items():
            if not agree(expected, build(paths)):
                print(f"tree_build: {name} disagrees at {nodes:,} nodes", file=sys.stderr)
                sys.exit(1)
            mine, theirs = medians(build, paths, turns, calls)
            ratio = theirs / mine
            # The floor is asked for beside the pinned builder; the literal formula is a yardstick.
            least = floor if name == PINNED else None
            met = None if least is None else ratio >= least
            yield Result(nodes, name, turns, calls, mine, theirs, ratio, least, met)


def table(results: list[Result]) -> Table:
    """The results for a terminal."""
    title = "Building the buffers of a random tree"
    measured = f"measured by `tree_build.py` on {os.cpu_count()} cores, medians of many runs"
    grid = Table(title=f"{title}, {measured}", title_justify="left")
    grid.add_column("nodes", justify="right")
    grid.add_column("peer")
    for name in ("peer ms", "ours ms", "ratio", "floor"):
        grid.add_column(name, justify="right")
    grid.add_column("met")
    for r in results:
        floor = "–" if r.floor is None else f"{r.floor}×"
        met = "–" if r.met is None else "yes" if r.met else "no"
        times = f"{r.peer_ms:,.3f}", f"{r.ours_ms:,.3f}", f"{r.ratio:,.1f}×"
        grid.add_row(f"{r.nodes:,}", r.peer, *times, floor, met)
    return grid


def machine() -> dict[str, Any]:
    """Where the figures were measured."""
    return {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def main() -> None:
    """Measure, then print a table or one JSON document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--checkout", type=Path, help="a checkout of the pinned release")
    parser.add_argument("--seed", type=int, default=0, help="of the random trees (default 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args()
    peers: dict[str, Builder] = {"the literal formula": literal}
    if given.checkout is not None:
        peers[PINNED] = pinned_builder(given.checkout)
    results = list(compare(peers, given.seed))
    if given.json:
        rows = [asdict(result) for result in results]
        document = {"machine": machine(), "topk": TOPK, "heads": HEADS, "seed": given.seed}
        print(json.dumps(document | {"results": rows}, indent=2))
        return
    console = Console()
    console.print(table(results))
    if given.checkout is None:
        console.print(f"--checkout DIR times {PINNED} as well, if DIR holds it.")


if __name__ == "__main__":
    main()
