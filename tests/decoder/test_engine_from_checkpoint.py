"""The whole engine on a LLaMA checkpoint with heads, against the library's own decoding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from medusa_reference_engine import ReferenceEngine
from medusa_spec.coordinate import Policy

GREEDY = Policy("greedy", 0.0, 0.09, 0.3, 0.8, 1e-5, ">", "first-maximal-path", "canonical", -1, 0)
TREE = (*((rank,) for rank in range(8)), *((rank, 0) for rank in range(8)), (0, 0, 0))
HEADS = 3


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=12,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.6,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def checkpoint(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    generator = torch.Generator().manual_seed(5)
    for head in range(HEADS):
        names = {
            f"medusa_head.{head}.0.linear.weight": (16, 16),
            f"medusa_head.{head}.0.linear.bias": (16,),
            f"medusa_head.{head}.1.weight": (12, 16),
        }
        for name, size in names.items():
            tensors[name] = torch.randn(size, generator=generator)
    save_file(tensors, file)
    return folder


@pytest.mark.parametrize("prompt", [[1, 2, 3], [0], [7, 0, 7, 0, 11]])
def test_greedy_decoding_is_the_librarys(
    model: LlamaForCausalLM, checkpoint: Path, prompt: list[int]
) -> None:
    engine = ReferenceEngine.from_checkpoint(checkpoint, 64)
    with torch.inference_mode():
        whole = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=24,
            do_sample=False,
        )
    expected = whole[0, len(prompt) :].tolist()
    decoded = engine.generate(prompt, 24, TREE, 8, GREEDY, None)
    assert list(decoded.tokens) == expected
    # Something was accepted, or the tree would not have been put to use.
    assert max(decoded.published) > 1
