"""One whole round that keeps every rule, made by the literal formulas and random numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from medusa_spec import Coordinate, Tolerance, Trace

EXACT = Tolerance(1e-9, 1e-9, "one dtype, one order of summation")


def lawful_trace(
    coordinate: Coordinate, literal: ModuleType, plausible: Sequence[tuple[int, int]] = ()
) -> Trace:
    """A trace of one round over `coordinate`.

    `plausible` names edges as (row, row of the child) whose child's token gets the greatest logit
    of its parent's row.
    """
    generator = np.random.default_rng(7)
    shape, policy = coordinate.model, coordinate.policy
    prefix, nodes = len(coordinate.prefix), coordinate.nodes
    heads, vocabulary = coordinate.heads, shape.vocabulary
    tree = literal.tree(coordinate.paths, coordinate.topk, policy.retrieval_order, policy.sentinel)
    retrieval, ancestry = tree["retrieve_indices"], np.array(tree["attention_mask"], np.bool_)

    frontier = generator.normal(size=vocabulary), generator.normal(size=(heads, vocabulary))
    ranked = [_descending(row)[: coordinate.topk] for row in frontier[1].tolist()]
    root = _descending(frontier[0].tolist())[0]
    packed = literal.packed_tokens(coordinate.paths, root, ranked)
    candidates = literal.candidates(retrieval, packed, policy.sentinel)

    logits = generator.normal(size=(nodes, vocabulary))
    for row, child in plausible:
        logits[row, packed[child]] = 5.0
    head_logits = generator.normal(size=(heads, nodes, vocabulary))
    path_logits = [[logits[row].tolist() if row >= 0 else None for row in r] for r in retrieval]
    judged = np.zeros((len(retrieval), len(retrieval[0]), vocabulary))
    for line, rows in enumerate(retrieval):
        for place, row in enumerate(rows):
            if row >= 0:
                judged[line, place] = logits[row]
    (path, accepted), selection = _selection(candidates, path_logits, policy, literal)
    plan = literal.commit(
        prefix,
        retrieval[path],
        candidates[path],
        accepted,
        coordinate.end_of_sequence,
    )

    backing = (shape.layers, 2, shape.kv_heads, coordinate.capacity, shape.head_dim)
    before = generator.normal(size=backing)
    after = before.copy()
    for source, destination in zip(plan["source"], plan["destination"], strict=True):
        after[:, :, :, destination] = before[:, :, :, source]

    terminal, grown = plan["frontier_row"], plan["length"]
    staged = before[:, :, :, prefix : prefix + nodes]
    arrays = {
        "tree.slots": np.array(tree["tree_indices"]),
        "tree.mask": ancestry,
        "tree.depths": np.array(tree["position_ids"]),
        "tree.retrieval": np.array(retrieval),
        "frontier.target": frontier[0],
        "frontier.heads": frontier[1],
        "proposal.table": np.array([root, *(token for row in ranked for token in row)]),
        "proposal.packed": np.array(packed),
        "proposal.candidates": np.array(candidates),
        "verification.logits": logits,
        "verification.head_logits": head_logits,
        "verification.path_logits": judged,
        "verification.mask": np.array([[True] * prefix + row for row in ancestry.tolist()]),
        "verification.positions": np.array([prefix + d for d in tree["position_ids"]]),
        "verification.rows": np.array([prefix + row for row in range(nodes)]),
        "verification.kv": staged,
        "plain.logits": logits + 1e-12,
        "plain.head_logits": head_logits - 1e-12,
        "plain.kv": staged + 1e-12,
        "selection.candidates": np.array(candidates),
        "selection.path_logits": judged,
        "commit.tokens": np.array(plan["tokens"]),
        "commit.source": np.array(plan["source"]),
        "commit.destination": np.array(plan["destination"]),
        "commit.length": np.array(grown),
        "commit.frontier.target": logits[terminal],
        "commit.frontier.heads": head_logits[:, terminal],
        "cache.before": before,
        "cache.after": after,
        "cache.length": np.array(grown),
        "round.visible_kv": after[:, :, :, :grown],
        "round.fresh_kv": after[:, :, :, :grown] + 1e-12,
        **selection,
    }
    documents = {
        "tree.paths": tuple(literal.rows(coordinate.paths)),
        "round.tokens": coordinate.prefix,
        "selection.refused": None,
        "selection.label": {
            "mode": policy.mode,
            "claim": "greedy-exact" if policy.mode == "greedy" else "heuristic",
            "rejects": False,
        },
    }
    return Trace(coordinate, EXACT, EXACT, arrays, documents)


def _descending(logits: Sequence[float]) -> list[int]:
    """Token ids by falling logit, the lower id first of equals."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))


def _selection(
    candidates: list[list[int]], path_logits: list[list[Any]], policy: Any, literal: ModuleType
) -> tuple[tuple[int, int], dict[str, Any]]:
    if policy.mode == "greedy":
        winner = literal.greedy(candidates, path_logits)
        passes = [
            literal.greedy_passes(tokens, rows)
            for tokens, rows in zip(candidates, path_logits, strict=True)
        ]
        edges: dict[str, Any] = {}
    else:
        winner = literal.fast_typical(candidates, path_logits, policy)
        tables = [
            [_edge(rows[j], tokens[j + 1], policy, literal) for j in range(len(tokens) - 1)]
            for tokens, rows in zip(candidates, path_logits, strict=True)
        ]
        passes = [[p > t for p, _, t in row] for row in tables]
        names = ("selection.probability", "selection.entropy", "selection.threshold")
        edges = {
            name: np.array([[edge[place] for edge in row] for row in tables])
            for place, name in enumerate(names)
        }
    lengths = [next((j for j, ok in enumerate(row) if not ok), len(row)) for row in passes]
    path, accepted = winner
    return winner, {
        "selection.path": np.array(path),
        "selection.accepted": np.array(accepted),
        "selection.passes": np.array(passes, np.bool_),
        "selection.lengths": np.array(lengths),
        **edges,
    }


def _edge(row: Any, token: int, policy: Any, literal: ModuleType) -> tuple[float, float, float]:
    """Probability, entropy and threshold of one edge; zero, zero and one where it is padding."""
    if token < 0 or row is None:
        return 0.0, 0.0, 1.0
    p = literal.softmax(row, policy.temperature)
    return p[token], literal.entropy(p, policy.entropy_guard), literal.threshold(p, policy)
