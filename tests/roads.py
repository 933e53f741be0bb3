"""Two of the three roads to a manifest's frozen values: the oracles', and the reference engine's.

The third is `literal_formula.frozen`; each gives a document like the `expected` block. What the
target makes of each row is the manifest's, so both are given the same crafted logits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from medusa_conformance.crafted import along_paths, posterior_logits, ranked_frontier
from medusa_oracles.claims import derive_claim, derive_typing
from medusa_oracles.commit import Publication, derive_commit
from medusa_oracles.cost import (
    derive_break_even,
    derive_counts,
    derive_overhead,
    derive_speedup,
)
from medusa_oracles.output_law import (
    derive_distance,
    derive_law,
    derive_tables,
    derive_target,
)
from medusa_oracles.posterior import derive_selection
from medusa_oracles.proposal import derive_proposal, derive_table
from medusa_oracles.search_plan import derive_search
from medusa_oracles.tree import derive_parents, derive_tree
from medusa_oracles.verification import derive_positions, derive_staged_rows
from medusa_reference_engine import ReferenceEngine
from medusa_spec import Coordinate, Policy, Tolerance, Trace
from medusa_spec.cost import COUNTS, RATES
from medusa_spec.stages import CommitPlan, Selection, TreeBuffers

PLACES = 12
"""Of frozen probabilities, whose sums are rounded otherwise on each road."""

EXACT = Tolerance(0.0, 0.0, "nothing here is compared within a tolerance")


def oracle(coordinate: Coordinate) -> dict[str, Any]:
    """What the oracles derive."""
    policy, prefix = coordinate.policy, coordinate.prefix_length
    tree = derive_tree(coordinate.paths, coordinate.topk, policy.retrieval_order, policy.sentinel)
    found = _buffers(tree) | {
        "parents": derive_parents(tree.paths).tolist(),
        "positions": derive_positions(tree.depths, prefix).tolist(),
        "staged_rows": derive_staged_rows(len(tree.paths), prefix).tolist(),
    }
    if coordinate.search is not None:
        decisions = derive_search(coordinate.search).decisions
        found["admitted"] = [list(decision.path) for decision in decisions]
    if coordinate.cost is not None:
        found["ledger"] = derive_counts(coordinate.cost)
        profile = coordinate.cost.profile
        if profile is not None:
            found["ledger"] |= {
                "overhead": derive_overhead(profile),
                "speedup": derive_speedup(profile),
                "breaks_even": derive_break_even(profile),
            }
    if coordinate.claims is not None:
        typings = derive_typing(coordinate.claims)
        found["typed"] = {name: typing.evidence for name, typing in typings.items()}
        found["local"] = [name for name, typing in typings.items() if typing.local]
        found["claimed"] = {law.mode: derive_claim(law) for law in coordinate.claims.policies}
    if coordinate.exactness is not None:
        tables = derive_tables(coordinate.exactness)
        law = derive_law(tables)
        found["law"] = law.round(PLACES).tolist()
        found["distance"] = round(derive_distance(law, derive_target(tables)), PLACES)
    if coordinate.ranking is None:
        return found
    frontier = ranked_frontier(coordinate.ranking, coordinate.model.vocabulary, coordinate.topk)
    table = derive_table(frontier.target, frontier.heads, coordinate.topk)
    proposal = derive_proposal(table, tree, policy.sentinel)
    found["packed_tokens"] = proposal.packed.tolist()
    found["candidates"] = proposal.candidates.tolist()
    if coordinate.paths and not coordinate.posterior:
        return found
    logits = along_paths(_judging(coordinate, tree), tree)
    for mode in ("greedy", "fast-typical"):
        selection = derive_selection(proposal.candidates, logits, _in_mode(policy, mode))
        found[mode.replace("-", "_")] = _winner(selection, tree, proposal.candidates)
        if mode == policy.mode:
            arrays = {
                "proposal.packed": proposal.packed,
                "selection.path": np.array(selection.path),
                "selection.accepted": np.array(selection.accepted),
            }
            documents = {"round.tokens": coordinate.prefix}
            plan = derive_commit(Trace(coordinate, EXACT, EXACT, arrays, documents))
            found["commit"] = _published(plan, plan.terminal)
    return found


def engine(coordinate: Coordinate) -> dict[str, Any]:
    """What the reference engine does, in one round over a cache that holds the prefix."""
    policy = coordinate.policy
    made = ReferenceEngine.seeded(coordinate.model, coordinate.heads, coordinate.capacity)
    tree = made.compile_tree(
        coordinate.paths, coordinate.topk, policy.retrieval_order, policy.sentinel
    )
    frontier = made.prefill(coordinate.prefix)
    if coordinate.ranking is not None:
        frontier = ranked_frontier(coordinate.ranking, coordinate.model.vocabulary, coordinate.topk)
    proposal = made.propose(tree, frontier, coordinate.topk, policy.sentinel)
    verified = made.verify(tree, proposal.packed)
    # An engine has no use for parents; a row's is the last other row that it sees.
    seen = [np.flatnonzero(row[:at]) for at, row in enumerate(tree.mask)]
    found = _buffers(tree) | {
        "parents": [int(rows[-1]) if len(rows) else -1 for rows in seen],
        "positions": verified.positions.tolist(),
        "staged_rows": verified.rows.tolist(),
    }
    if coordinate.search is not None:
        found["admitted"] = [list(path) for path in made.search_tree(coordinate.search).paths]
    if coordinate.cost is not None:
        seen = made.cost(coordinate.cost)
        counts = {name: getattr(seen, name) for name in COUNTS}
        noted = {name: getattr(seen, name) for name in RATES}
        found["ledger"] = counts | {n: rate.item() for n, rate in noted.items() if rate is not None}
    if coordinate.claims is not None:
        claims = made.publish_claims(coordinate.claims)
        found["typed"] = {entry["name"]: entry["evidence"] for entry in claims.figures}
        found["local"] = [entry["name"] for entry in claims.figures if entry["local"]]
        found["claimed"] = {entry["mode"]: entry["claim"] for entry in claims.policies}
    if coordinate.exactness is not None:
        answer = made.law(coordinate.exactness)
        found["law"] = answer.law.round(PLACES).tolist()
        found["distance"] = round(float(answer.distance), PLACES)
    if coordinate.ranking is None:
        return found
    found["packed_tokens"] = proposal.packed.tolist()
    found["candidates"] = proposal.candidates.tolist()
    if coordinate.paths and not coordinate.posterior:
        return found
    logits = along_paths(_judging(coordinate, tree), tree)
    for mode in ("greedy", "fast-typical"):
        selection = made.select(proposal.candidates, logits, _in_mode(policy, mode))
        found[mode.replace("-", "_")] = _winner(selection, tree, proposal.candidates)
        if mode == policy.mode:
            plan = made.commit(selection.path, selection.accepted, coordinate.end_of_sequence)
            (row,) = np.flatnonzero((verified.logits == plan.frontier.target).all(axis=1))
            assert (verified.head_logits[:, row] == plan.frontier.heads).all()
            assert made.cache().length == plan.length
            found["commit"] = _published(plan, int(row))
    return found


def _buffers(tree: TreeBuffers) -> dict[str, Any]:
    return {
        "tree_indices": tree.slots.tolist(),
        "attention_mask": tree.mask.astype(int).tolist(),
        "position_ids": tree.depths.tolist(),
        "retrieve_indices": tree.retrieval.tolist(),
    }


def _judging(coordinate: Coordinate, tree: TreeBuffers) -> Any:
    return posterior_logits(coordinate.posterior, tree, coordinate.model.vocabulary)


def _in_mode(policy: Policy, mode: Any) -> Policy:
    # A greedy policy has temperature 0; what fast typical would do is told at temperature 1.
    return replace(policy, mode=mode, temperature=policy.temperature or 1.0)


def _winner(selection: Selection, tree: TreeBuffers, candidates: Any) -> dict[str, Any]:
    rows = tree.retrieval[selection.path]
    return {
        "path": list(tree.paths[rows[rows >= 0][-1]]),
        "accepted": selection.accepted,
        "tokens": candidates[selection.path, : selection.accepted + 1].tolist(),
    }


def _published(plan: CommitPlan | Publication, frontier_row: int) -> dict[str, Any]:
    return {
        "tokens": plan.tokens.tolist(),
        "source": plan.source.tolist(),
        "destination": plan.destination.tolist(),
        "length": plan.length,
        "frontier_row": frontier_row,
    }
