"""medusa-llm 0.1: its buffers, candidates, tree pass, posterior, commit, heads and decode loop.

Every number comes from the shipped functions and classes; the model is the package's own LLaMA,
tiny and seeded. Needs `transformers==4.36.2`, behind which that class does not load.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from medusa_conformance.adapters.head_modules import run_heads
from medusa_conformance.adapters.package_llama import (
    LOOP_ENDS,
    NARROW_REFUSES,
    Ids,
    by_row,
    decoder,
    folder,
    hold_to_capacity,
    hold_to_choice,
    hold_to_commits,
    read_rounds,
)
from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import Unsupported


class Engine:
    """The model, the functions of its loop on one cache, and `medusa_generate`."""

    name, version = "medusa-llm", "0.1"
    dialect: Mapping[str, Any] = {
        "dtype": "float32",  # The package computes its norms in it, whatever the weights are.
        "policy": {"retrieval_order": "canonical", "entropy_guard": 1e-5},
        "choices": "branching",
        "slots": "own",
        "topk_ties": "any",
        "end_of_sequence": "loop",
        "refusals": "any-error",
        "reasons": {
            "policy": "constants of the package",
            "slots": "as many slots a depth as its branching factor, with no room to spare",
            "topk_ties": "torch.topk promises no order among equal logits",
            "end_of_sequence": LOOP_ENDS,
            "refusals": NARROW_REFUSES,
        },
    }

    def __init__(self, coordinate: Coordinate, capacity: int) -> None:
        self.torch = importlib.import_module("torch")
        self.torch.set_grad_enabled(False)  # As the package's own command line does.
        self.utils = importlib.import_module("medusa.model.utils")
        self.caches = importlib.import_module("medusa.model.kv_cache").initialize_past_key_values
        self.coordinate, self.capacity = coordinate, capacity
        self.branching: list[int] = []
        self.seen: Any = None

    @cached_property
    def model(self) -> Any:
        """The model; heads are loaded as `from_pretrained` loads them."""
        shape, heads = self.coordinate.model, self.coordinate.heads
        if shape.projection != "independent" or not heads:
            raise Unsupported("there is one head at least, and each owns its projection")
        llama = importlib.import_module("medusa.model.modeling_llama_kv").LlamaForCausalLM
        # The cache has a row for every query head: keys and values are not shared by several.
        base, given = decoder(llama, self.coordinate, self.capacity, shape.attention_heads)
        medusa = importlib.import_module("medusa.model.medusa_model").MedusaModel
        model = medusa(base, heads, shape.head_blocks, folder())
        own = {name.removeprefix("medusa_head."): given[name] for name in given}
        model.medusa_head.load_state_dict(own, strict=False)
        return model.eval()

    def apply_heads(self, state: Any, hidden: Any) -> Any:
        """The modules `medusa_head`."""
        return run_heads(self.model.medusa_head, state, hidden)

    def node_count(self, branching: Any) -> int:
        """The rows of `generate_medusa_buffers`, without the root."""
        built = self.utils.generate_medusa_buffers([1, *branching], "cpu")
        return len(built["tree_indices"]) - 1

    def compile_tree(self, branching: Any, topk: int, retrieval_order: str, sentinel: int) -> Any:
        """`generate_medusa_buffers`, kept as `medusa_generate` keeps them."""
        self.branching = list(branching)
        self.buffers = built = self.utils.generate_medusa_buffers([1, *self.branching], "cpu")
        return {
            "slots": built["tree_indices"],
            "mask": built["medusa_attn_mask"][0, 0],
            "depths": built["medusa_position_ids"],
            "retrieval": built["retrieve_indices"],
        }

    def prefill(self, tokens: Any) -> Any:
        """`initialize_medusa` on a new cache."""
        hold_to_capacity(tokens, self.capacity)
        self.past, self.data, self.length = self.caches(self.model.base_model)
        self.tokens, self.seen = self.torch.tensor([list(tokens)]), None
        self.utils.reset_medusa_mode(self.model)
        mask = self.buffers["medusa_attn_mask"]
        heads, target = self.utils.initialize_medusa(self.tokens, self.model, mask, self.past)
        return {"target": target[0, -1], "heads": heads[:, 0, -1]}

    def propose(self, tree: Any, frontier: Any, topk: int, sentinel: int) -> Any:
        """`generate_candidates`, of as many heads as the choices have numbers."""
        if not self.branching:
            raise Unsupported("a tree of the root alone: there is one head at least")
        heads = self.torch.as_tensor(frontier.heads)[: len(self.branching), None, None]
        target, slots = self.torch.as_tensor(frontier.target), self.buffers["tree_indices"]
        self.candidates, packed = self.utils.generate_candidates(
            heads, target[None, None], self.branching, slots, 0.0
        )
        return {"packed": packed[0], "candidates": self.candidates}

    def verify(self, tree: Any, packed: Any) -> Any:
        """`tree_decoding`."""
        hold_to_commits(self.seen)
        buffers, begin = self.buffers, self.tokens.shape[1]
        positions, retrieval = buffers["medusa_position_ids"], buffers["retrieve_indices"]
        given = self.torch.as_tensor(packed)[None]
        self.seen = heads, target, _ = self.utils.tree_decoding(
            self.model, given, self.past, positions, self.tokens, retrieval
        )
        logits = by_row(target, retrieval, len(packed))
        head_logits = by_row(heads, retrieval, len(packed))
        kv = self.cache()["backing"][:, :, :, begin : begin + len(packed)]
        return {"logits": logits, "head_logits": head_logits, "path_logits": target, "kv": kv}

    def select(self, candidates: Any, path_logits: Any, policy: Any) -> Any:
        """`evaluate_posterior`."""
        if (candidates < 0).any():
            raise Unsupported("a padded path: regular trees have none")
        given = self.torch.as_tensor(path_logits), self.torch.as_tensor(candidates)
        path, accepted = self.utils.evaluate_posterior(
            *given, policy.temperature, policy.epsilon, policy.alpha
        )
        return {"path": path, "accepted": accepted}

    def commit(self, path: int, accepted: int, end_of_sequence: int | None) -> Any:
        """`update_inference_inputs`; where a sequence ends is decided behind it, by the loop."""
        begin, retrieval = self.tokens.shape[1], self.buffers["retrieve_indices"]
        hold_to_choice(self.seen, retrieval, path, accepted)
        (heads, target, outputs), self.seen = self.seen, None
        choice = self.candidates, self.torch.tensor(path), accepted, retrieval, outputs
        self.tokens, target, heads, _ = self.utils.update_inference_inputs(
            self.tokens, *choice, target, heads, 0, self.data, self.length
        )
        frontier = {"target": target[0, -1], "heads": heads[:, 0, -1]}
        tokens = self.tokens[0, begin:]
        return {"tokens": tokens, "length": self.length[0], "frontier": frontier}

    def cache(self) -> Any:
        """`past_key_values_data`, keys and values of a layer in turn."""
        return {"backing": self.data[:, 0].unflatten(0, (-1, 2)), "length": self.length[0]}

    def forward(self, tokens: Any) -> Any:
        """The model's plain pass, into a cache of its own."""
        past, data, _ = self.caches(self.model.base_model)
        self.utils.reset_medusa_mode(self.model)
        given = self.torch.tensor([list(tokens)])
        heads, _, target = self.model(given, past_key_values=past, output_orig=True)
        kv = data[:, 0, :, : len(tokens)].unflatten(0, (-1, 2))
        return {"logits": target[0], "head_logits": heads[:, 0], "kv": kv}

    def generate(
        self, prefix: Any, how_many: int, branching: Any, topk: int, policy: Any, end: int | None
    ) -> Any:
        """`medusa_generate`, read until it has written enough."""
        choices = [1, *branching]
        if len(choices) != self.coordinate.heads + 1:
            raise Unsupported("a tree that is not as deep as there are heads")
        self.model.tokenizer = Ids(end)
        given = self.torch.tensor([list(prefix)])
        limits = policy.temperature, how_many, choices, policy.epsilon, policy.alpha
        steps = self.model.medusa_generate(given, None, *limits)
        return read_rounds((step["text"] for step in steps), how_many)
