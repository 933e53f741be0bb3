"""Engines that are wrong in exactly one named way."""

from medusa_mutations import (
    checkpoint,
    commit,
    coordinate,
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
    "commit",
    "coordinate",
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
