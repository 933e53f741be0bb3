"""`rotalabs-accel`: heads, candidates, the verification of one chain, and `medusa_decode`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from medusa_conformance.adapters.package_llama import Ids, decoder
from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import Unsupported


class Text(Ids):
    """Its prompts are texts, which are the tokens themselves here."""

    def encode(self, text: Any, return_tensors: str) -> Any:
        """Token ids `[1, S]`."""
        return importlib.import_module("torch").tensor([list(text)])


class Engine:
    """Its loop verifies the best candidate alone: the chain of every head's first choice."""

    name = "rotalabs-accel"
    version = "1.1.1"
    dialect: Mapping[str, Any] = {
        "dtype": "float32",
        "topk_ties": "any",
        "reasons": {"topk_ties": "torch.topk promises no order among equal logits"},
    }

    def __init__(self, coordinate: Coordinate, capacity: int) -> None:
        self.torch = importlib.import_module("torch")
        self.package = importlib.import_module("rotalabs_accel.speculative")
        self.coordinate, self.capacity = coordinate, capacity
        self.chain = [(0,) * depth for depth in range(1, coordinate.heads + 1)]

    def apply_heads(self, state: Any, hidden: Any) -> Any:
        """One `MedusaHead` a head, with as many hidden layers as the head has blocks."""
        if state.projection is None:
            raise Unsupported("every head of the package owns its projection")
        torch, states, blocks = self.torch, self.torch.as_tensor(hidden), state.weight.shape[1]
        residual, logits, parameters = [], [], 0
        for weight, bias, projection in zip(
            state.weight, state.bias, state.projection, strict=True
        ):
            head = (
                self.package.MedusaHead(*projection.shape[::-1], blocks + 1)
                .double()
                .requires_grad_(False)
            )
            *inner, last = [m for m in head.modules() if isinstance(m, torch.nn.Linear)]
            for linear, w, b in zip(inner, weight, bias, strict=True):
                linear.load_state_dict({"weight": torch.as_tensor(w), "bias": torch.as_tensor(b)})
            last.load_state_dict({"weight": torch.as_tensor(projection)})
            residual.append(head.head[:-1](states) if inner else states)
            logits.append(head(states))
            parameters += sum(tensor.numel() for tensor in head.parameters())
        residual, logits = torch.stack(residual), torch.stack(logits)
        return {"residual": residual, "logits": logits, "parameters": parameters}

    def propose(self, tree: Any, frontier: Any, topk: int, sentinel: int) -> Any:
        """`generate_candidates`, of which the loop takes the first."""
        self.own_chain(tree)
        heads = [self.torch.as_tensor(row)[None, None] for row in frontier.heads]
        target = self.torch.as_tensor(frontier.target)[None, None]
        candidates, _ = self.package.generate_candidates(target, heads, topk)
        return {"packed": candidates[0], "candidates": candidates[:1]}

    def prefill(self, tokens: Any) -> Any:
        """The loop's first pass, over the whole prompt."""
        if not self.chain or len(tokens) > self.capacity:
            raise Unsupported("the package has heads, and its cache grows as it needs to")
        self.tokens, self.medusa = self.torch.tensor([list(tokens)]), self.model()
        base, heads, _ = self.medusa(self.tokens)
        return {"target": base[0, -1], "heads": self.torch.stack([row[0, -1] for row in heads])}

    def verify(self, tree: Any, packed: Any) -> Any:
        """`verify_candidates` of the first round; a hook sees the logits that it keeps."""
        self.own_chain(tree)
        if self.tokens.shape[1] + len(packed) > self.capacity:
            raise Unsupported("its cache grows as it needs to")
        seen: list[Any] = []
        base, drafts = self.medusa.base_model, self.torch.as_tensor(packed)[None]
        hook = base.register_forward_hook(lambda *passed: seen.append(passed[-1].logits[0]))
        try:
            _, _, cache = self.package.verify_candidates(base, self.tokens, drafts)
        finally:
            hook.remove()
        kv = [self.torch.cat([layer.keys, layer.values]) for layer in cache.layers]
        begin = self.tokens.shape[1]
        return {"logits": seen[0][begin:], "kv": self.torch.stack(kv)[:, :, :, begin:]}

    def select(self, candidates: Any, path_logits: Any, policy: Any) -> Any:
        """`verify_candidates`, on a target that answers with the given logits behind the root."""
        if len(candidates) > 1:
            raise Unsupported("the package verifies one candidate")
        if policy.mode != "greedy":
            raise Unsupported("the package verifies greedily whatever its temperature")
        given, logits = self.torch.as_tensor(candidates), self.torch.as_tensor(path_logits)
        answer = SimpleNamespace(logits=logits, past_key_values=None)
        _, accepted, _ = self.package.verify_candidates(
            lambda *_, **__: answer, given[:, :1], given[:, 1:]
        )
        return {"path": 0, "accepted": accepted}

    def own_chain(self, tree: Any) -> None:
        """The package has no tree; its one candidate takes every head's first choice."""
        if list(tree.paths[1:]) != self.chain:
            raise Unsupported("the package drafts one chain, of every head's first choice")

    def model(self) -> Any:
        """A transformers LLaMA, and the package's heads on it."""
        shape, heads = self.coordinate.model, self.coordinate.heads
        llama = importlib.import_module("transformers").LlamaForCausalLM
        base, _ = decoder(llama, self.coordinate, self.capacity, shape.kv_heads)
        # The package draws the parameters of its heads; the same engine draws the same.
        self.torch.manual_seed(shape.weight_seed)
        return self.package.MedusaModel(base, heads, shape.head_blocks + 1).double()

    def forward(self, tokens: Any) -> Any:
        """The base model's own causal pass."""
        with self.torch.no_grad():
            passed = self.model().base_model(self.torch.tensor([list(tokens)]))
        kv = [self.torch.cat([layer.keys, layer.values]) for layer in passed.past_key_values.layers]
        return {"logits": passed.logits[0], "kv": self.torch.stack(kv)}

    def generate(
        self, prefix: Any, how_many: int, paths: Any, topk: int, policy: Any, end: int | None
    ) -> Any:
        """`medusa_decode`, whose candidates are its own whatever the tree."""
        heads = self.coordinate.heads
        if not heads or policy.mode != "greedy":
            raise Unsupported("the package has heads, and verifies greedily")
        medusa, package = self.model(), self.package
        layers = self.coordinate.model.head_blocks + 1
        asked = package.MedusaConfig(heads, topk, how_many, head_num_layers=layers)
        text, _ = package.medusa_decode(
            medusa,
            medusa.base_model,
            Text(end),
            prefix,
            asked,
            self.torch.device("cpu"),
        )
        return {"tokens": text[len(prefix) :]}
