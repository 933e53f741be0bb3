"""The reference engine: one decoder, a stage a contract, one session; numpy in and numpy out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from medusa_reference_engine.checkpoint import CheckpointStage, Origin
from medusa_reference_engine.claims import ClaimsStage
from medusa_reference_engine.commit import CommitStage
from medusa_reference_engine.coordinate import AdmissionStage
from medusa_reference_engine.cost import CostStage
from medusa_reference_engine.decoder import Cache, Decoder, causal_mask
from medusa_reference_engine.exactness import ExactnessStage
from medusa_reference_engine.heads import HeadStage, HeadTensors
from medusa_reference_engine.learner import Learner
from medusa_reference_engine.posterior import PosteriorStage
from medusa_reference_engine.proposal import ProposalStage
from medusa_reference_engine.round import RoundStage, Session
from medusa_reference_engine.sampled_decoding import sample_tokens
from medusa_reference_engine.search import SearchStage
from medusa_reference_engine.training import TrainingStage
from medusa_reference_engine.tree import TreeStage
from medusa_reference_engine.verification import Model, VerificationStage, floats
from medusa_reference_engine.weights import head_state, load_checkpoint, seeded_weights
from medusa_spec.arrays import BoolArray, FloatArray, IntArray, RankPath
from medusa_spec.claims import Claims, Facts
from medusa_spec.coordinate import (
    Calibration,
    Exactness,
    ModelShape,
    Policy,
    Release,
    Sampling,
    Training,
    Workload,
)
from medusa_spec.cost import CostLedger
from medusa_spec.errors import Refused
from medusa_spec.laws import OutputLaw, Sampled
from medusa_spec.stages import (
    Admission,
    CacheView,
    CommitPlan,
    Decoded,
    Forward,
    Frontier,
    HeadAlignment,
    HeadPass,
    HeadState,
    LoadedCheckpoint,
    Proposal,
    SavedCheckpoint,
    SearchPlan,
    Selection,
    TrainingStep,
    TreeBuffers,
    Verification,
)


@dataclass(frozen=True, slots=True)
class Stages:
    """The class of each stage, one a contract; a mutant has exactly one of another class."""

    coordinate: type[AdmissionStage] = AdmissionStage
    heads: type[HeadStage] = HeadStage
    tree: type[TreeStage] = TreeStage
    proposal: type[ProposalStage] = ProposalStage
    verification: type[VerificationStage] = VerificationStage
    posterior: type[PosteriorStage] = PosteriorStage
    commit: type[CommitStage] = CommitStage
    round: type[RoundStage] = RoundStage
    search: type[SearchStage] = SearchStage
    exactness: type[ExactnessStage] = ExactnessStage
    training: type[TrainingStage] = TrainingStage
    checkpoint: type[CheckpointStage] = CheckpointStage
    cost: type[CostStage] = CostStage
    claims: type[ClaimsStage] = ClaimsStage


class ReferenceEngine:
    """Medusa decoding, batch one.

    Every public method is a protocol stage, but for `capacity` and `sample_tokens`.
    """

    name = "reference"

    def __init__(
        self, decoder: Decoder, heads: HeadState, capacity: int, stages: Stages | None = None
    ) -> None:
        made = stages or Stages()
        self._admission = made.coordinate()
        self._heads = made.heads()
        self._tree = made.tree()
        self._proposal = made.proposal()
        self._verification = made.verification()
        self._posterior = made.posterior()
        self._commit = made.commit()
        self._round = made.round()
        self._search = made.search()
        self._exactness = made.exactness()
        self._training = made.training()
        self._checkpoint = made.checkpoint()
        self._cost = made.cost()
        self._claims = made.claims()
        weight = decoder.lm_head.weight
        self._dtype, self._device = weight.dtype, weight.device
        held = self._heads.load(HeadTensors.of(heads, self._dtype, self._device))
        self._model = Model(decoder, held, self._heads)
        self._session = Session(self._cache(capacity))
        self._learner: Learner | None = None
        self._shown: HeadTensors | None = None
        self._origin = self._began_with = Origin(decoder)

    @classmethod
    def seeded(
        cls,
        shape: ModelShape,
        heads: int,
        capacity: int,
        *,
        dtype: str = "float64",
        device: str = "cpu",
        stages: Stages | None = None,
    ) -> ReferenceEngine:
        """An engine with random weights drawn from `shape.weight_seed`."""
        decoder, state = _seeded(shape, heads, dtype, device)
        return cls(decoder, state, capacity, stages)

    @classmethod
    def from_checkpoint(
        cls, path: Path, capacity: int, *, dtype: str = "float32", device: str = "cpu"
    ) -> ReferenceEngine:
        """An engine with the weights of a LLaMA safetensors checkpoint (see `weights`)."""
        shape, weights = load_checkpoint(Path(path))
        decoder = _decoder(shape, weights, dtype, device)
        return cls(decoder, head_state(shape, weights), capacity)

    def _cache(self, capacity: int) -> Cache:
        return Cache(self._model.decoder.shape, capacity, self._dtype, self._device)

    @property
    def capacity(self) -> int:
        """Rows of the cache."""
        return self._session.cache.capacity

    def admit(self, document: Mapping[str, Any]) -> Admission:
        """Read a coordinate document, or refuse it."""
        return self._admission.admit(document)

    @torch.inference_mode()
    def apply_heads(self, state: HeadState, hidden: FloatArray) -> HeadPass:
        """Load `state` into fresh heads and run them on hidden states `[..., d]`."""
        held = self._heads.load(HeadTensors.of(state, self._dtype, self._device))
        inputs = torch.as_tensor(hidden, dtype=self._dtype, device=self._device)
        residual, logits = self._heads.run(held, inputs)
        return HeadPass(floats(residual), floats(logits), _state(held), self._heads.count(held))

    def align_heads(self, tokens: IntArray, owned: BoolArray, heads: int) -> HeadAlignment:
        """Shifted labels of a batch `[B, S]`."""
        return self._heads.align(tokens, owned, heads)

    def search_tree(self, calibration: Calibration) -> SearchPlan:
        """The tree of so many paths that accuracies are worth most with."""
        return self._search.search(calibration)

    def law(self, exactness: Exactness) -> OutputLaw:
        """The law of what a mode publishes over a table model, by every outcome of its draws."""
        return self._exactness.law(exactness)

    def sample(self, exactness: Exactness, seed: int, count: int) -> Sampled:
        """`count` sequences that the same rounds publish, drawn with a seed."""
        return self._exactness.sample(exactness, seed, count)

    def train_step(self, training: Training, step: int) -> TrainingStep:
        """One step; decoding goes on with what was trained, and no generation with what was not.

        Step 0 begins a training of the model as it is now. `Refused`, with nothing changed, for
        another step than the next of the same training.
        """
        if step == 0:
            self._learner = Learner.begin(training, self._model)
            self._began_with = self._origin
        learner = self._learner
        if learner is None or (learner.training, learner.steps) != (training, step):
            raise Refused(f"step {step} does not follow the last one of its training")
        seen = self._training.step(learner)
        self._model = learner.model()
        self._origin = self._began_with.after(learner)
        self._session = Session(self._cache(self.capacity))
        return seen

    @torch.no_grad()
    def save_checkpoint(
        self, folder: Path, release: Release, state: HeadState | None
    ) -> SavedCheckpoint:
        """Save the engine's heads, or those of `state`, and the backbone where it was changed.

        `Refused`, with nothing left in the folder, where that cannot be done.
        """
        model = self._model
        heads = model.held
        if state is not None:
            heads = HeadTensors.of(state, self._dtype, self._device)
            if heads.sizes() != model.held.sizes():
                rule = f"are {heads.sizes()}, and this engine's {model.held.sizes()}"
                raise Refused(f"heads: shapes of weight, bias and projection {rule}")
        return self._checkpoint.save(Path(folder), release, heads, model.decoder, self._origin)

    @torch.no_grad()
    def load_checkpoint(self, folder: Path, release: Release) -> LoadedCheckpoint:
        """Go on with the heads and the backbone of a folder, in no training and no generation.

        `Refused`, with the engine as it was, where the folder is not what `release` says, or not
        made for this engine.
        """
        found = self._checkpoint.load(Path(folder), release, self._model.held, self._origin)
        self._model = Model(found.decoder, self._heads.load(found.heads), self._heads)
        self._origin, self._learner = found.origin, None
        self._session = self._checkpoint.session(self._session, self._cache(self.capacity))
        return LoadedCheckpoint(_state(self._model.held), found.identity)

    @torch.no_grad()
    def cost(self, workload: Workload) -> CostLedger:
        """What one round of a workload takes; nothing of its sizes is allocated."""
        return self._cost.ledger(workload)

    def publish_claims(self, facts: Facts) -> Claims:
        """What may be said of figures and policies, beside what is said of any Medusa."""
        return self._claims.publish(facts)

    def compile_tree(
        self, paths: Sequence[RankPath], topk: int, retrieval_order: str, sentinel: int
    ) -> TreeBuffers:
        """The four buffers of a prefix-closed path set."""
        return self._tree.compile(paths, topk, retrieval_order, sentinel)

    def node_count(self, branching: Sequence[int]) -> int:
        """Candidate nodes of a regular tree."""
        return self._tree.node_count(branching)

    @torch.inference_mode()
    def prefill(self, tokens: Sequence[int]) -> Frontier:
        """Begin a generation. `Refused`, with the old one intact, where the prefix does not fit."""
        return self._round.prefill(tokens, self._model, self._session)

    def propose(self, tree: TreeBuffers, frontier: Frontier, topk: int, sentinel: int) -> Proposal:
        """Candidates from a frontier."""
        return self._proposal.propose(tree, frontier, topk, sentinel)

    @torch.inference_mode()
    def verify(self, tree: TreeBuffers, packed: IntArray) -> Verification:
        """One target pass over the packed tree; `Refused` before a write where it does not fit."""
        session = self._session
        self._commit.reserve(session.cache, len(packed))
        verified = self._verification.verify(tree, packed, self._model, session.cache)
        session.staged = (tree, packed, verified)
        return verified

    @torch.inference_mode()
    def select(self, candidates: IntArray, path_logits: FloatArray, policy: Policy) -> Selection:
        """The winning path and its accepted edges."""
        return self._posterior.select(candidates, path_logits, policy)

    def label(self, policy: Policy) -> Mapping[str, Any]:
        """What the engine claims of a policy."""
        return self._posterior.label(policy)

    @torch.inference_mode()
    def commit(self, path: int, accepted: int, end_of_sequence: int | None) -> CommitPlan:
        """Publish the staged winner; `Refused`, with nothing changed, where it names none."""
        session = self._session
        if session.staged is None:
            raise Refused("no tree is staged")
        tree, packed, verified = session.staged
        plan = self._commit.commit(
            path, accepted, tree, packed, verified, session.cache, end_of_sequence
        )
        session.staged = None
        return plan

    def cache(self) -> CacheView:
        """A copy of the cache's backing, and its visible length."""
        cache = self._session.cache
        return CacheView(floats(cache.kv), cache.length)

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int]) -> Forward:
        """A plain causal pass in a cache of its own.

        The heads' parameters are shown by the first pass that reads them; others read the same.
        """
        count = len(tokens)
        scratch = self._cache(count)
        rows = torch.arange(count, device=self._device)
        masks = [causal_mask(count, self._device)] * len(scratch.kv)
        inputs = torch.as_tensor(tokens, device=self._device)
        hidden = self._model.decoder(inputs, rows, rows, masks, scratch)
        logits, head_logits = self._model.logits(hidden)
        held = self._model.held
        state = None if held is self._shown else _state(held)
        self._shown = held
        return Forward(
            floats(logits), floats(head_logits), floats(scratch.kv), floats(hidden), state
        )

    def generate(
        self,
        prefix: Sequence[int],
        how_many: int,
        paths: Sequence[RankPath],
        topk: int,
        policy: Policy,
        end_of_sequence: int | None,
    ) -> Decoded:
        """A whole generation of `how_many` tokens."""
        return self._round.generate(self, prefix, how_many, paths, topk, policy, end_of_sequence)

    def sample_tokens(
        self,
        prefix: Sequence[int],
        how_many: int,
        paths: Sequence[RankPath],
        topk: int,
        sampling: Sampling,
        seed: int,
    ) -> tuple[int, ...]:
        """A generation under a sampling mode; see `sampled_decoding`."""
        given = prefix, how_many, paths, topk, sampling, seed
        return sample_tokens(self, self._exactness, *given)


def _state(held: HeadTensors) -> HeadState:
    own = None if held.projection is None else floats(held.projection)
    return HeadState(floats(held.weight), floats(held.bias), floats(held.lm_head), own)


# Judging hundreds of mutants on one coordinate draws the same weights every time.
@lru_cache(maxsize=64)
def _seeded(shape: ModelShape, heads: int, dtype: str, device: str) -> tuple[Decoder, HeadState]:
    weights = {name: torch.from_numpy(w) for name, w in seeded_weights(shape, heads).items()}
    return _decoder(shape, weights, dtype, device), head_state(shape, weights, heads)


def _decoder(
    shape: ModelShape, weights: Mapping[str, torch.Tensor], dtype: str, device: str
) -> Decoder:
    decoder = Decoder(shape, dtype=getattr(torch, dtype), device=torch.device(device))
    own = {name: w for name, w in weights.items() if not name.startswith("medusa_head.")}
    decoder.load_state_dict(own, strict=True)
    return decoder.eval()
