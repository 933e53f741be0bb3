"""`nvidia-modelopt`: the heads that `convert` adds to a transformers model, and their labels."""

from __future__ import annotations

import importlib
from typing import Any

from medusa_conformance.adapters.head_modules import run_heads
from medusa_conformance.adapters.package_llama import decoder
from medusa_spec.coordinate import Coordinate

IGNORED = -100


class Engine:
    """A tiny LLaMA converted in mode `medusa`; the package trains heads and does not decode."""

    name = "nvidia-modelopt"
    version = "0.47.0"

    def __init__(self, coordinate: Coordinate, capacity: int) -> None:
        self.torch = importlib.import_module("torch")
        self.coordinate, self.capacity = coordinate, capacity

    def model(self, heads: int) -> Any:
        """The converted model."""
        llama, shape = (
            importlib.import_module("transformers").LlamaForCausalLM,
            self.coordinate.model,
        )
        base, _ = decoder(llama, self.coordinate, self.capacity, shape.kv_heads)
        asked = {"medusa_num_heads": heads, "medusa_num_layers": shape.head_blocks}
        speculative = importlib.import_module("modelopt.torch.speculative")
        return speculative.convert(base, [("medusa", asked)])

    def apply_heads(self, state: Any, hidden: Any) -> Any:
        """The modules `medusa_heads`, which its forward pass calls on the last hidden states."""
        return run_heads(self.model(len(state.weight)).medusa_heads, state, hidden)

    def align_heads(self, tokens: Any, owned: Any, heads: int) -> Any:
        """The labels that reach the loss of each head.

        Its data collator gives every row the next token as its label, and none to the last.
        """
        model = self.model(heads)
        labels = self.labels(model, tokens, owned | True)
        counted = self.labels(model, tokens, owned) != IGNORED
        return {
            "labels": labels,
            "owned": counted,
            "coverage": (labels != IGNORED).sum((1, 2)),
            "masked_coverage": counted.sum((1, 2)),
        }

    def labels(self, model: Any, tokens: Any, owned: Any) -> Any:
        """Labels `[K, B, S]` as the loss sees them; a row that it does not see has none."""
        torch, seen = self.torch, []
        ids = torch.as_tensor(tokens)
        given = torch.full_like(ids, IGNORED)
        given[:, :-1] = torch.where(torch.as_tensor(owned), ids, IGNORED)[:, 1:]

        def look(module: Any, arguments: Any) -> None:
            if isinstance(module, torch.nn.CrossEntropyLoss):
                seen.append(arguments[1].view(len(ids), -1))

        hook = torch.nn.modules.module.register_module_forward_pre_hook(look)
        try:
            model(ids, labels=given)
        finally:
            hook.remove()
        whole = torch.full((len(seen), *ids.shape), IGNORED)
        for labels, each in zip(whole, seen, strict=True):
            labels[:, : each.shape[1]] = each
        return whole
