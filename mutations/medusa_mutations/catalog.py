"""The catalog of mutants: what each corrupts, which rule it breaks, and the engine that has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeVar

from medusa_reference_engine.checkpoint import CheckpointStage
from medusa_reference_engine.claims import ClaimsStage
from medusa_reference_engine.commit import CommitStage
from medusa_reference_engine.coordinate import AdmissionStage
from medusa_reference_engine.cost import CostStage
from medusa_reference_engine.engine import Stages
from medusa_reference_engine.exactness import ExactnessStage
from medusa_reference_engine.heads import HeadStage
from medusa_reference_engine.posterior import PosteriorStage
from medusa_reference_engine.proposal import ProposalStage
from medusa_reference_engine.round import RoundStage
from medusa_reference_engine.search import SearchStage
from medusa_reference_engine.training import TrainingStage
from medusa_reference_engine.tree import TreeStage
from medusa_reference_engine.verification import VerificationStage
from medusa_spec.documents import parse_yaml, validate
from medusa_spec.errors import InputError
from medusa_spec.registry import invariants

STAGES: dict[type[Any], str] = {
    AdmissionStage: "coordinate",
    HeadStage: "heads",
    TreeStage: "tree",
    ProposalStage: "proposal",
    VerificationStage: "verification",
    PosteriorStage: "posterior",
    CommitStage: "commit",
    RoundStage: "round",
    SearchStage: "search",
    ExactnessStage: "exactness",
    TrainingStage: "training",
    CheckpointStage: "checkpoint",
    CostStage: "cost",
    ClaimsStage: "claims",
}
"""The field of `Stages` that holds each stage class."""

Stage = TypeVar("Stage", bound=type[Any])


@dataclass(frozen=True, slots=True)
class Mutation:
    """One named corruption. `killer` is the invariant that must find it.

    `exposed_by` names a frozen coordinate on which it does, the smallest when it was chosen.

    `preserves` says what the corruption leaves as it was; `stage` is the class that replaces the
    engine's own, and differs from it in what `sentence` says.
    """

    id: str
    contract: str
    section: str
    killer: str
    origin: Literal["article", "wild"]
    exposed_by: str
    preserves: str
    sentence: str
    stage: type[Any]

    def stages(self) -> Stages:
        """The engine's stages, exactly one of them replaced."""
        base = next(parent for parent in self.stage.__mro__ if parent in STAGES)
        return replace(Stages(), **{STAGES[base]: self.stage})


_CORRUPTED: dict[str, type[Any]] = {}


def mutant(name: str) -> Callable[[Stage], Stage]:
    """Register a stage class as the corruption that the catalog calls `name`."""

    def register(stage: Stage) -> Stage:
        if name in _CORRUPTED:
            raise KeyError(f"two stages are called {name}")
        _CORRUPTED[name] = stage
        return stage

    return register


@cache
def mutations() -> dict[str, Mutation]:
    """Every mutation by its id, in the order of the catalog."""
    name = "catalog.yaml"
    text = resources.files("medusa_mutations").joinpath(name).read_text("utf-8")
    document = parse_yaml(text, name)
    validate(document, "mutants", name)
    for entry in document:
        if entry["id"] not in _CORRUPTED:
            raise InputError(name, entry["id"], f'no class carries @mutant("{entry["id"]}")')
        if entry["killer"] not in invariants():
            raise InputError(name, f"{entry['id']}.killer", f"{entry['killer']} is no invariant")
    listed = {entry["id"]: Mutation(**entry, stage=_CORRUPTED[entry["id"]]) for entry in document}
    for unlisted in sorted(_CORRUPTED.keys() - listed.keys()):
        raise InputError(name, unlisted, "is a class and not in the catalog")
    return listed
