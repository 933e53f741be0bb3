"""How often samples betray a biased sampler, and how often they wrong a right one.

    python benchmarks/sampling_power.py [--seeds N] [--json]

Two samplers publish over the tables of the manifest `law-row-draw`: the reference engine, whose law
is the target's, and the mutant `path-draws-for-row-draws`, which draws for each path and position
and then anew, 0.1064 away from it. Each draws with every seed, at several sizes of a sample, and
EXACTNESS.SAMPLED_LAW judges. The power at a size is the share of seeds at which the mutant is
heard; the reference engine is heard with a probability of a millionth at most.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

import medusa_manifests
from medusa_mutations import mutations
from medusa_oracles.exactness import derived
from medusa_oracles.tails import derive_unlikely
from medusa_reference_engine.exactness import ExactnessStage
from medusa_spec.coordinate import Exactness

MANIFEST, BIASED = "law-row-draw", "path-draws-for-row-draws"
SIZES = (250, 500, 1000, 2000)
"""Sequences of a sample; the manifest asks for 1,000."""


@dataclass(frozen=True)
class Result:
    """One sampler at one size: at how many of the seeds it was heard."""

    sampler: str
    sequences: int
    seeds: int
    heard: int


def heard(stage: ExactnessStage, given: Exactness, seeds: int, size: int) -> int:
    """At how many seeds a sample is no chance."""
    digits = given.vocabulary ** np.arange(given.length)[::-1]
    law = derived(given).law
    found = 0
    for seed in range(seeds):
        places = stage.sample(given, seed, size).tokens @ digits
        counts = np.bincount(places, minlength=len(law))
        found += derive_unlikely(counts, law) is not None
    return found


def results(seeds: int) -> list[Result]:
    """Both samplers at every size."""
    given = medusa_manifests.load(MANIFEST).exactness
    assert given is not None
    samplers = {BIASED: mutations()[BIASED].stage(), "reference engine": ExactnessStage()}
    return [
        Result(name, size, seeds, heard(stage, given, seeds, size))
        for name, stage in samplers.items()
        for size in SIZES
    ]


def main() -> None:
    """Print a table, or one JSON document."""
    parser = argparse.ArgumentParser(description="Power and false alarms of the sampled law.")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = results(options.seeds)
    if options.json:
        print(json.dumps([asdict(result) for result in found]))
        return
    grid = Table("sampler", "sequences", "seeds", "heard", title=f"Samples of {MANIFEST}")
    for r in found:
        grid.add_row(r.sampler, f"{r.sequences:,}", f"{r.seeds:,}", f"{r.heard:,}")
    Console().print(grid)


if __name__ == "__main__":
    main()
