"""eagle-llm 1.2.1: its tree buffers, tree pass, greedy posterior, commit and decode loop.

The model is the package's own LLaMA, tiny and seeded, with a drafter of random weights: what is
drafted is no business of ours, and greedy output must not depend on it. Needs
`transformers==4.36.2`, behind which that class does not load.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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
    """The model, the functions of its loop on one cache, and `eagenerate`."""

    name, version = "eagle-llm", "1.2.1"
    dialect: Mapping[str, Any] = {
        "dtype": "float32",  # The package computes its norms in it, whatever the weights are.
        "policy": {"sentinel": -1},
        "retrieval": "own",
        "slots": "own",
        "end_of_sequence": "loop",
        "refusals": "any-error",
        "reasons": {
            "policy": "a constant of the package",
            "slots": "ten slots for the children of each parent, which have a draft of their own",
            "end_of_sequence": LOOP_ENDS,
            "refusals": NARROW_REFUSES,
        },
    }

    def __init__(self, coordinate: Coordinate, capacity: int) -> None:
        self.torch = importlib.import_module("torch")
        self.torch.set_grad_enabled(False)  # As the package's own loop does.
        self.utils = importlib.import_module("eagle.model.utils")
        self.caches_of = importlib.import_module("eagle.model.kv_cache").initialize_past_key_values
        self.coordinate, self.capacity = coordinate, capacity
        self.target: Any = None
        self.candidates: Any = None
        self.path_logits: Any = None

    @cached_property
    def model(self) -> Any:
        """`EaModel`."""
        if self.coordinate.model.vocabulary < self.utils.TOPK:
            raise Unsupported(f"the drafter ranks {self.utils.TOPK} tokens")
        package = importlib.import_module("eagle.model.ea_model")
        shape = self.coordinate.model
        base, _ = decoder(
            package.KVLlamaForCausalLM, self.coordinate, self.capacity, shape.kv_heads
        )
        self.torch.manual_seed(shape.weight_seed)
        with TemporaryDirectory() as place:
            config = Path(place) / "config.json"
            config.write_text(json.dumps({**base.config.to_dict(), "num_hidden_layers": 1}))
            return package.EaModel(base, folder(), str(config)).eval()

    def compile_tree(self, paths: Any, topk: int, retrieval_order: str, sentinel: int) -> Any:
        """`generate_tree_buffers`."""
        if not paths:
            raise Unsupported("the package takes the greatest of the path lengths, and has none")
        if max(map(max, paths)) >= self.utils.TOPK:
            raise Unsupported(f"the package ranks {self.utils.TOPK} tokens below a node")
        self.buffers = built = self.utils.generate_tree_buffers(list(map(list, paths)), "cpu")
        return {
            "slots": built["tree_indices"],
            "mask": built["tree_attn_mask"][0, 0],
            "depths": built["tree_position_ids"],
            "retrieval": built["retrieve_indices"],
        }

    def hold_to_drafts(self, buffers: Any) -> None:
        """`Unsupported` for a tree beyond the drafter's own, where the package ends in an error."""
        drafted = self.model.ea_layer.tree_buffer["tree_indices"]
        room = self.utils.TOPK * (1 + sum(map(len, drafted)))
        if int(buffers["tree_indices"].max()) > room:
            raise Unsupported(
                "its drafter drafts for a tree of its own, and a tree of more parents "
                "ends in an IndexError (eagle_llm.md)"
            )

    def prefill(self, tokens: Any) -> Any:
        """`initialize_tree` on a new cache; the drafter has no heads to show."""
        hold_to_capacity(tokens, self.capacity)
        self.past, self.data, self.length = self.caches_of(self.model.base_model)
        self.tokens, self.path_logits = self.torch.tensor([list(tokens)]), None
        self.model.ea_layer.reset_kv()
        self.utils.reset_tree_mode(self.model)
        self.drafts, logits, _, self.root = self.utils.initialize_tree(
            self.tokens, self.model, self.buffers["tree_attn_mask"], self.past, None
        )
        self.target = logits[0, -1]
        return {"target": self.target}

    def propose(self, tree: Any, frontier: Any, topk: int, sentinel: int) -> Any:
        """`generate_candidates` from what the drafter left behind the last round."""
        if self.target is None or not (frontier.target == self.target.numpy()).all():
            raise Unsupported("the drafter reads its own session, and no frontier that is given")
        self.hold_to_drafts(self.buffers)
        slots, retrieval = self.buffers["tree_indices"], self.buffers["retrieve_indices"]
        self.candidates, _, packed = self.utils.generate_candidates(
            self.drafts, slots, retrieval, self.root, None
        )
        return {"packed": packed[0], "candidates": self.candidates}

    def verify(self, tree: Any, packed: Any) -> Any:
        """`tree_decoding`."""
        hold_to_commits(self.path_logits)
        positions, retrieval = self.buffers["tree_position_ids"], self.buffers["retrieve_indices"]
        given, begin = self.torch.as_tensor(packed)[None], self.tokens.shape[1]
        self.path_logits, self.hidden, _ = self.utils.tree_decoding(
            self.model, given, self.past, positions, self.tokens, retrieval
        )
        logits = by_row(self.path_logits, retrieval, len(packed))
        kv = self.cache()["backing"][:, :, :, begin : begin + len(packed)]
        return {"logits": logits, "path_logits": self.path_logits, "kv": kv}

    def select(self, candidates: Any, path_logits: Any, policy: Any) -> Any:
        """`evaluate_posterior` without a processor of logits."""
        if policy.mode != "greedy":
            raise Unsupported("another policy than greedy is rejection sampling")
        given = self.torch.as_tensor(path_logits), self.torch.as_tensor(candidates)
        path, accepted, _ = self.utils.evaluate_posterior(*given, *[None] * 6)
        return {"path": path, "accepted": accepted}

    def commit(self, path: int, accepted: int, end_of_sequence: int | None) -> Any:
        """`update_inference_inputs`, with the logits that `evaluate_posterior` hands it."""
        begin, retrieval = self.tokens.shape[1], self.buffers["retrieve_indices"]
        hold_to_choice(self.path_logits, retrieval, path, accepted)
        choice = self.torch.tensor(path), self.torch.tensor(accepted), retrieval, None
        given = self.path_logits, self.drafts, 0, self.data, self.length, self.model
        self.target = self.path_logits[path, accepted]
        self.tokens, self.drafts, _, _, self.root = self.utils.update_inference_inputs(
            self.tokens, self.candidates, *choice, *given, None, self.hidden, self.target
        )
        self.path_logits, frontier = None, {"target": self.target}
        return {"tokens": self.tokens[0, begin:], "length": self.length[0], "frontier": frontier}

    def cache(self) -> Any:
        """The data behind `past_key_values`, keys and values of a layer in turn."""
        return {"backing": self.data[0][:, 0].unflatten(0, (-1, 2)), "length": self.length[0]}

    def forward(self, tokens: Any) -> Any:
        """The base model's plain pass, into a cache of its own."""
        base = self.model.base_model
        self.utils.reset_tree_mode(self.model)
        past, [data], _ = self.caches_of(base)
        given = self.torch.tensor([list(tokens)])
        hidden = base.model(given, past_key_values=past)[0]
        kv = data[:, 0, :, : len(tokens)].unflatten(0, (-1, 2))
        return {"logits": base.lm_head(hidden)[0], "kv": kv}

    def generate(
        self, prefix: Any, how_many: int, paths: Any, topk: int, policy: Any, end: int | None
    ) -> Any:
        """`ea_generate`, read until it has written enough."""
        if policy.mode != "greedy" or not paths:
            raise Unsupported("another policy than greedy is rejection sampling; a tree has paths")
        given, choices = self.torch.tensor([list(prefix)]), list(map(list, paths))
        self.hold_to_drafts(self.utils.generate_tree_buffers(choices, "cpu"))
        self.model.tokenizer = Ids(end)
        steps = self.model.ea_generate(given, max_steps=how_many, tree_choices=choices)
        return read_rounds((step[0, len(prefix) :].tolist() for step in steps), how_many)
