"""Engines that are wrong in exactly one named way."""

from medusa_mutations import (
    commit,
    coordinate,
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
    "commit",
    "coordinate",
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
