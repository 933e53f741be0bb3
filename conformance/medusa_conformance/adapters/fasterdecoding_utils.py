"""The pinned FasterDecoding release, `medusa/model/utils.py` loaded alone.

The checkout is the folder that the environment names in `MEDUSA_CHECKOUT`; one that differs from
the source pin is not judged.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from medusa_conformance.checkout import hash_checkout, is_pinned
from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import InputError, Unsupported
from medusa_spec.loading import source_pin


@cache
def checkout() -> Path:
    """The checkout, hashed against the source pin."""
    folder = Path(os.environ.get("MEDUSA_CHECKOUT", ""))
    found = hash_checkout(folder)
    if not is_pinned(found):
        wrong = ", ".join(f"{name} {state}" for name, state in found.items() if state != "matches")
        raise InputError(str(folder), "", f"is not the pinned release: {wrong}")
    return folder


@cache
def utils() -> Any:
    """The module, which needs torch alone."""
    path = checkout() / "medusa" / "model" / "utils.py"
    spec = importlib.util.spec_from_file_location("pinned_medusa_utils", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Utils:
    """Tree, proposal and posterior, called as `medusa_generate` calls them."""

    name = "FasterDecoding/Medusa, utils.py"
    version = source_pin()["commit"]
    dialect: Mapping[str, Any] = {
        "policy": {"retrieval_order": "pinned", "sentinel": -1, "entropy_guard": 1e-5},
        "slots": 10,
        "pad_token": 0,
        "topk_ties": "any",
        "reasons": {
            "policy": "constants of the release: rows from the last path to the first, padding of "
            "-2 moved by one, and 1e-5 inside the logarithm",
            "topk_ties": "torch.topk promises no order among equal logits",
        },
    }

    def __init__(self, coordinate: Coordinate, capacity: int) -> None:
        self.torch, self.utils = importlib.import_module("torch"), utils()

    def admit_tree(self, paths: Any) -> None:
        """What `generate_medusa_buffers` was made for."""
        if not paths:
            raise Unsupported("the release takes the greatest of the path lengths, and has none")
        if max(map(max, paths)) >= self.utils.TOPK:
            raise Unsupported(f"the release ranks {self.utils.TOPK} tokens a head")

    def admit_vocabulary(self, size: int) -> None:
        """What `generate_candidates` was made for."""
        if size < self.utils.TOPK:
            raise Unsupported(f"the release ranks {self.utils.TOPK} tokens a head")

    def compile_tree(self, paths: Any, topk: int, retrieval_order: str, sentinel: int) -> Any:
        """`generate_medusa_buffers`."""
        self.admit_tree(paths)
        built = self.utils.generate_medusa_buffers([list(path) for path in paths], "cpu")
        self.buffers = built
        return {
            "slots": built["tree_indices"],
            "mask": built["medusa_attn_mask"][0, 0],
            "depths": built["medusa_position_ids"],
            "retrieval": built["retrieve_indices"],
        }

    def propose(self, tree: Any, frontier: Any, topk: int, sentinel: int) -> Any:
        """`generate_candidates`, greedy or fast, which choose alike."""
        target, heads = map(self.torch.as_tensor, (frontier.target, frontier.heads))
        self.admit_vocabulary(len(target))
        slots, retrieval = self.buffers["tree_indices"], self.buffers["retrieve_indices"]
        self.candidates, packed = self.utils.generate_candidates(
            heads[:, None, None], target[None, None], slots, retrieval, fast=True
        )
        return {"packed": packed[0], "candidates": self.candidates}

    def select(self, candidates: Any, path_logits: Any, policy: Any) -> Any:
        """`evaluate_posterior`."""
        logits, drafts = map(self.torch.as_tensor, (path_logits, candidates))
        typical = policy.temperature, policy.epsilon, policy.alpha
        path, accepted = self.utils.evaluate_posterior(logits, drafts, *typical, fast=True)
        return {"path": path, "accepted": accepted}
