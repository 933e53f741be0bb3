"""Round: prefill, then rounds until enough is published; nothing outlives a generation (0x07A)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from medusa_reference_engine.decoder import Cache, causal_mask
from medusa_reference_engine.verification import Model, floats
from medusa_spec.arrays import IntArray, RankPath
from medusa_spec.coordinate import Policy
from medusa_spec.errors import Refused
from medusa_spec.stages import CommitPlan, Decoded, Frontier, Selection, TreeBuffers, Verification

if TYPE_CHECKING:
    from medusa_reference_engine.engine import ReferenceEngine


@dataclass(slots=True)
class Session:
    """One generation: its cache, and the tree that is staged and not yet committed."""

    cache: Cache
    staged: tuple[TreeBuffers, IntArray, Verification] | None = None


class RoundStage:
    """Clauses R1 to R8."""

    def prefill(self, tokens: Sequence[int], model: Model, session: Session) -> Frontier:
        """Fill an empty cache with the prefix; `Refused`, with the old one intact, if too long."""
        tokens = self.fitting(tokens, session.cache)
        self.reset(session)
        count, device = len(tokens), session.cache.kv.device
        rows = torch.arange(count, device=device)
        masks = [causal_mask(count, device)] * len(session.cache.kv)
        logits, head_logits = model.read(
            torch.as_tensor(tokens, device=device),
            self.positions(rows),
            rows,
            masks,
            session.cache,
        )
        session.cache.length = count
        return self.first_frontier(logits, head_logits)

    def fitting(self, tokens: Sequence[int], cache: Cache) -> Sequence[int]:
        """Clause M10: a prefix is never empty, and never longer than the cache."""
        if not 0 < len(tokens) <= cache.capacity:
            raise Refused(f"a prefix of {len(tokens)} tokens in a cache of {cache.capacity}")
        return tokens

    def first_frontier(self, logits: torch.Tensor, head_logits: torch.Tensor) -> Frontier:
        """Clause R10: the last prefix row, of logits `[P, V]` and head logits `[K, P, V]`."""
        return Frontier(floats(logits[-1]), floats(head_logits[:, -1]))

    def reset(self, session: Session) -> None:
        """Clause R8: nothing of an earlier generation is visible."""
        session.cache.length = 0
        session.staged = None

    def positions(self, rows: torch.Tensor) -> torch.Tensor:
        """Logical positions of the prefix: without a tree, position and row are one."""
        return rows

    def generate(
        self,
        engine: ReferenceEngine,
        prefix: Sequence[int],
        how_many: int,
        paths: Sequence[RankPath],
        topk: int,
        policy: Policy,
        end_of_sequence: int | None,
    ) -> Decoded:
        """Rounds until `how_many` tokens are published, or the sequence ends.

        The last round may publish more than was asked for; the surplus is cut. `Refused` before
        the first write where prefix, output and one more tree might not fit.
        """
        tree = engine.compile_tree(paths, topk, policy.retrieval_order, policy.sentinel)
        if len(prefix) + how_many - 1 + len(paths) + 1 > engine.capacity:
            raise Refused(f"{how_many} tokens and a tree may not fit the cache")
        frontier = engine.prefill(prefix)
        output: list[int] = []
        published: list[int] = []
        frontiers = []
        # A round publishes at least one token, so no more rounds than tokens are ever needed.
        for _ in range(how_many):
            frontiers.append(frontier.target)
            plan = self.round(engine, tree, frontier, topk, policy, end_of_sequence)
            output += plan.tokens.tolist()
            published.append(len(plan.tokens))
            frontier = self.next_frontier(frontier, plan)
            if len(output) >= how_many or (output and output[-1] == end_of_sequence):
                break
        tokens = self.cut(output, how_many)
        return Decoded(tuple(tokens), tuple(published), np.array(frontiers))

    def round(
        self,
        engine: ReferenceEngine,
        tree: TreeBuffers,
        frontier: Frontier,
        topk: int,
        policy: Policy,
        end_of_sequence: int | None,
    ) -> CommitPlan:
        """Proposal, verification, selection, commit: once."""
        proposal = engine.propose(tree, frontier, topk, policy.sentinel)
        verified = engine.verify(tree, proposal.packed)
        selection = engine.select(proposal.candidates, verified.path_logits, policy)
        accepted = self.accepted(selection, tree)
        return engine.commit(selection.path, accepted, end_of_sequence)

    def accepted(self, selection: Selection, tree: TreeBuffers) -> int:
        """Accepted edges, as the posterior counted them."""
        return selection.accepted

    def next_frontier(self, frontier: Frontier, plan: CommitPlan) -> Frontier:
        """Clause R1."""
        return plan.frontier

    def cut(self, output: list[int], how_many: int) -> list[int]:
        """The first `how_many` tokens."""
        return output[:how_many]
