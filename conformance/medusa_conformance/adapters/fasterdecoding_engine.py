"""The pinned FasterDecoding release as a whole, in an environment with `transformers==4.36.2`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medusa_conformance.adapters.fasterdecoding_model import model_of, release
from medusa_conformance.adapters.fasterdecoding_utils import Utils
from medusa_conformance.adapters.head_modules import run_heads
from medusa_conformance.adapters.package_llama import (
    NARROW_REFUSES,
    Ids,
    hold_to_capacity,
    hold_to_commits,
    read_rounds,
)
from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import Unsupported


class Engine(Utils):
    """The stages of the release's loop on one cache, and the loop itself, `medusa_generate`."""

    name = "FasterDecoding/Medusa"
    dialect: Mapping[str, Any] = {
        **Utils.dialect,
        "dtype": "float32",
        "end_of_sequence": "loop",
        "refusals": "any-error",
        "reasons": {
            **Utils.dialect["reasons"],
            "end_of_sequence": "update_inference_inputs is told of no end; medusa_generate looks "
            "for it behind every round",
            "refusals": NARROW_REFUSES,
        },
    }

    def __init__(self, coordinate: Coordinate, capacity: int) -> None:
        super().__init__(coordinate, capacity)
        self.model, self.capacity = model_of(coordinate, capacity), capacity
        self.seen: Any = None
        self.past, self.data, self.length = release().initialize_past_key_values(self.model)

    def apply_heads(self, state: Any, hidden: Any) -> Any:
        """The modules `medusa_head`."""
        return run_heads(self.model.medusa_head, state, hidden)

    def prefill(self, tokens: Any) -> Any:
        """`initialize_medusa` on an emptied cache."""
        hold_to_capacity(tokens, self.capacity)
        self.utils.reset_medusa_mode(self.model)
        self.utils.reset_past_key_values(self.past)
        self.tokens, self.seen = self.torch.tensor([list(tokens)]), None
        heads, target = self.utils.initialize_medusa(self.tokens, self.model, None, self.past)
        return {"target": target[0, -1], "heads": heads[:, 0, -1]}

    def verify(self, tree: Any, packed: Any) -> Any:
        """`tree_decoding`; the rows' own logits are the same modules' on its hidden states."""
        hold_to_commits(self.seen)
        buffers, base, rows = self.buffers, self.model.base_model, self.torch.as_tensor(packed)
        base.model.medusa_mask = buffers["medusa_attn_mask"]
        positions, retrieval = buffers["medusa_position_ids"], buffers["retrieve_indices"]
        self.seen = self.utils.tree_decoding(
            self.model, rows[None], self.past, positions, self.tokens, retrieval
        )
        hidden, begin = self.seen[2][0][0], self.tokens.shape[1]
        return {
            "logits": base.lm_head(hidden),
            "head_logits": self.torch.stack([head(hidden) for head in self.model.medusa_head]),
            "path_logits": self.seen[1],
            "positions": base.model.position_ids[0],
            "kv": self.cache()["backing"][:, :, :, begin : begin + len(rows)],
        }

    def commit(self, path: int, accepted: int, end_of_sequence: int | None) -> Any:
        """`update_inference_inputs`; the end of a sequence is the business of the loop."""
        begin, retrieval = self.tokens.shape[1], self.buffers["retrieve_indices"]
        if not 0 <= path < len(retrieval):
            raise Unsupported("the loop commits the path that evaluate_posterior named")
        (heads, logits, outputs), self.seen = self.seen, None
        self.tokens, target, heads, _ = self.utils.update_inference_inputs(
            self.tokens,
            self.candidates,
            *map(self.torch.tensor, (path, accepted)),
            retrieval,
            outputs,
            logits,
            heads,
            0,
            self.data,
            self.length,
        )
        return {
            "tokens": self.tokens[0, begin:],
            "length": self.length[0],
            "frontier": {"target": target[0, -1], "heads": heads[:, 0, -1]},
        }

    def cache(self) -> Any:
        """The data behind `past_key_values`, keys and values in turn."""
        _, _, heads, rows, width = self.data.shape
        return {"backing": self.data.view(-1, 2, heads, rows, width), "length": self.length[0]}

    def forward(self, tokens: Any) -> Any:
        """The same model without a tree, on a cache of its own."""
        self.utils.reset_medusa_mode(self.model)
        past, data, _ = release().initialize_past_key_values(self.model)
        given = self.torch.tensor([list(tokens)])
        heads, _, target = self.model(
            given, past_key_values=past, output_orig=True, medusa_forward=True
        )
        _, _, groups, rows, width = data.shape
        kv = data.view(-1, 2, groups, rows, width)[:, :, :, : len(tokens)]
        return {"logits": target[0], "head_logits": heads[:, 0], "kv": kv}

    def generate(
        self, prefix: Any, how_many: int, paths: Any, topk: int, policy: Any, end: int | None
    ) -> Any:
        """`medusa_generate`, until it has given as many tokens as were asked for."""
        self.admit_tree(paths)
        self.admit_vocabulary(self.model.vocab_size)
        self.model.tokenizer = Ids(end)
        steps = self.model.medusa_generate(
            self.torch.tensor([list(prefix)]),
            temperature=policy.temperature,
            max_steps=how_many,
            medusa_choices=[list(path) for path in paths],
            posterior_threshold=policy.epsilon,
            posterior_alpha=policy.alpha,
        )
        return read_rounds((step["text"] for step in steps), how_many)
