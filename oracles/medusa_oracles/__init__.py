"""Pure-numpy oracles: each derives what must be observed, and judges what was."""

from medusa_oracles import (
    checkpoint,
    checkpoint_kept,
    claims,
    commit,
    coordinate,
    cost,
    exactness,
    heads,
    posterior,
    proposal,
    round,
    search,
    training,
    training_update,
    tree,
    verification,
)
from medusa_oracles.judge import Judgement, judge, oracles
from medusa_oracles.tree import derive_tree

__all__ = [
    "Judgement",
    "checkpoint",
    "checkpoint_kept",
    "claims",
    "commit",
    "coordinate",
    "cost",
    "derive_tree",
    "exactness",
    "heads",
    "judge",
    "oracles",
    "posterior",
    "proposal",
    "round",
    "search",
    "training",
    "training_update",
    "tree",
    "verification",
]
