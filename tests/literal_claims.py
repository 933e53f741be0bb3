"""Claims as they should be published, written out by hand: no table of the data is read here.

The methods are told as their papers tell them, and the topics as the article defers them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from medusa_spec import Coordinate, Tolerance, Trace
from medusa_spec.claims import Facts, Figure, Law

WITHIN = Tolerance(1e-9, 1e-9, "nothing here is compared within a tolerance")

METHODS = {
    "blockwise-parallel-decoding": (
        *("parallel-heads", "chain", "longest-greedy-prefix"),
        *("heads-with-or-without-backbone", "verified-prefix"),
    ),
    "specinfer": (
        *("small-models", "merged-token-tree", "greedy-or-stochastic-tree"),
        *("drafters-towards-target", "verified-path-and-own-token"),
    ),
    "medusa-1": (
        *("parallel-heads", "sparse-rank-tree", "greedy-or-typical-paths"),
        *("heads-alone", "rows-gathered-base-named"),
    ),
    "medusa-2": (
        *("parallel-heads", "sparse-rank-tree", "greedy-or-typical-paths"),
        *("joint-with-preservation", "rows-gathered-backbone-shipped"),
    ),
}

TOPICS = {
    "single-path-speculative-sampling": "speculative decoding with a draft model",
    "general-cache-lifecycle": "key/value caching",
    "lookahead": "Jacobi and n-gram decoding",
    "feature-level-drafters": "feature-level drafting, such as EAGLE",
    "sequential-multi-token-prediction": "sequential MTP modules",
    "dependent-heads": "sequentially dependent heads, such as Hydra and Clover",
    "dynamic-trees": "hardware-aware tree selection",
    "exact-multi-candidate-sampling": "multi-candidate selection",
    "continuous-batching": "speculative serving",
    "production-serving": "speculative serving",
}

RUN = {"machine": "m", "command": "c", "sample": {"size": 3, "of": "rounds"}}

# Each row: name, quantity, origin, and by hand what it rests on, its sources, whether it is local.
ROWS: tuple[tuple[str, str, dict[str, Any], list[str], list[str], bool], ...] = (
    ("time", "time", {"kind": "run", **RUN}, ["measured"], [], True),
    ("guess", "count", {"kind": "made-up", "purpose": "p"}, ["synthetic"], [], False),
    ("quoted", "speedup", {"kind": "said", "source": "a"}, ["source-reported"], ["a"], False),
    ("other", "speedup", {"kind": "said", "source": "b"}, ["source-reported"], ["b"], False),
    ("slot", "count", {"kind": "computed", "formula": "1 + 1", "inputs": []}, [], [], False),
    (
        *("own", "rate", {"kind": "computed", "formula": "1 / time", "inputs": ["time"]}),
        *(["measured"], [], True),
    ),
    (
        *("mean", "speedup"),
        {"kind": "computed", "formula": "the mean", "inputs": ["quoted", "other"]},
        *(["source-reported"], ["a", "b"], False),
    ),
    (
        *(
            "hoped",
            "rate",
            {"kind": "computed", "formula": "guess * own", "inputs": ["own", "guess"]},
        ),
        *(["measured", "synthetic"], [], False),
    ),
    (
        *("all", "count"),
        {"kind": "computed", "formula": "a sum", "inputs": ["slot", "hoped", "mean"]},
        *(["measured", "source-reported", "synthetic"], ["a", "b"], False),
    ),
)

CALLED = {
    "run": "measured",
    "made-up": "synthetic",
    "said": "source-reported",
    "computed": "derived",
}

LAWS = (
    (Law("greedy", 0.0), "greedy-exact"),
    (Law("fast-typical", 0.0), "heuristic"),
    (Law("typical", None), "heuristic"),
    (Law("typical-per-path", 0.0), "heuristic"),
    (Law("nucleus-per-path", 0.0), "heuristic"),
    (Law("rejection-uncorrected", None), "heuristic"),
    (Law("nucleus", 1e-12), "heuristic"),
    (Law("rejection", None), "unproven"),
    (Law("one-draw-per-row", 0.0), "target-law"),
)

FACTS = Facts(
    tuple(Figure(name, 0.5 + row, "u", kind, o) for row, (name, kind, o, *_) in enumerate(ROWS)),
    tuple(law for law, _ in LAWS),
)


def figures() -> list[dict[str, Any]]:
    """Every row as it is to be published."""
    return [
        {
            "name": name,
            "value": 0.5 + row,
            "unit": "u",
            "quantity": quantity,
            "evidence": CALLED[origin["kind"]],
            "rests_on": rests_on,
            "sources": sources,
            "local": local,
            **{key: value for key, value in origin.items() if key not in ("kind", "source")},
        }
        for row, (name, quantity, origin, rests_on, sources, local) in enumerate(ROWS)
    ]


def document() -> dict[str, Any]:
    """The claims of `FACTS`, as one document."""
    contracts = ("proposal", "topology", "verification", "training", "publication")
    return {
        "figures": figures(),
        "policies": [{"mode": law.mode, "claim": claim} for law, claim in LAWS],
        "batch": 1,
        "lineage": [
            {"method": method, **dict(zip(contracts, words, strict=True))}
            for method, words in METHODS.items()
        ],
        "scope": [
            {"topic": topic, "owner": owner, "covered": False} for topic, owner in TOPICS.items()
        ],
    }


def trace(coordinate: Coordinate) -> Trace:
    """What a lawful engine publishes of `FACTS`."""
    said = document()
    batch = np.array(said.pop("batch"))
    return Trace(
        replace(coordinate, claims=FACTS),
        WITHIN,
        WITHIN,
        {"claims.batch": batch},
        {f"claims.{name}": value for name, value in said.items()},
    )
