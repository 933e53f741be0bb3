"""`nvidia-modelopt`: the heads that `convert` adds to a model, their labels, and checkpoints."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medusa_conformance.adapters.head_modules import load_heads, run_heads, state_of
from medusa_conformance.adapters.package_llama import decoder
from medusa_spec.coordinate import Coordinate
from medusa_spec.errors import Unsupported

IGNORED = -100


class Engine:
    """A tiny LLaMA converted in mode `medusa`; the package trains heads and does not decode."""

    name = "nvidia-modelopt"
    version = "0.47.0"
    dialect: Mapping[str, Any] = {
        "refusals": "any-error",
        "reasons": {"refusals": "transformers raises whatever the file's reader does"},
    }

    def __init__(self, coordinate: Coordinate, capacity: int) -> None:
        self.torch = importlib.import_module("torch")
        self.coordinate, self.capacity = coordinate, capacity
        self.loaded: Any = None

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

    def save_checkpoint(self, folder: Path, release: Any, state: Any) -> dict[str, Any]:
        """`save_pretrained`, as the package enables it: the whole model, its heads among it."""
        if release.variant != "medusa-1":
            raise Unsupported("this adapter does not train the backbone")
        model = self.loaded or self.model(self.coordinate.heads)
        if state is not None:
            load_heads(model.medusa_heads, state)
        self.enabled()
        model.save_pretrained(folder)
        fields = {"heads": "medusa.num_medusa_heads", "blocks": "medusa.num_medusa_layers"}
        return {
            "config": "config.json",
            "fields": fields | {"dtype": "dtype"},
            "heads": [file.name for file in sorted(folder.glob("*.safetensors"))],
            "backbone": [],
        }

    def load_checkpoint(self, folder: Path, release: Any) -> dict[str, Any]:
        """`from_pretrained`; the package asks for no base, revision or tokenizer."""
        if not (folder / "config.json").exists():
            raise Unsupported("without a config a model of seven billion parameters is made")
        self.loaded = self.enabled().from_pretrained(folder, dtype=self.torch.float64)
        blocks = self.coordinate.model.head_blocks
        return {"state": state_of(self.loaded.medusa_heads, blocks)}

    def enabled(self) -> Any:
        """A transformers class that saves and restores what `convert` added."""
        importlib.import_module("modelopt.torch.opt").enable_huggingface_checkpointing()
        return importlib.import_module("transformers").LlamaForCausalLM

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
