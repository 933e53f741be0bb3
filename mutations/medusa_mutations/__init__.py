"""Engines that are wrong in exactly one named way."""

from medusa_mutations import (
    checkpoint,
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
    tree,
    verification,
)
from medusa_mutations.catalog import Mutation, mutations

__all__ = [
    "Mutation",
    "checkpoint",
    "claims",
    "commit",
    "coordinate",
    "cost",
    "exactness",
    "heads",
    "mutations",
    "posterior",
    "proposal",
    "round",
    "search",
    "training",
    "tree",
    "verification",
]
