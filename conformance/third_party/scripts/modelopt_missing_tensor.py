"""A head's tensor that is in no file is drawn at random, with a warning. With nvidia-modelopt."""

import sys
import tempfile
from pathlib import Path

import modelopt.torch.opt as mto
import modelopt.torch.speculative as mtsp
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

mto.enable_huggingface_checkpointing()
base = LlamaForCausalLM(LlamaConfig(vocab_size=12, hidden_size=8, intermediate_size=16,
                                    num_hidden_layers=1, num_attention_heads=2))  # fmt: skip
model = mtsp.convert(base, [("medusa", {"medusa_num_heads": 2, "medusa_num_layers": 1})])
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    file = Path(folder) / "model.safetensors"
    tensors = load_file(file)
    lost = tensors.pop("medusa_heads.1.1.weight")
    save_file(tensors, file, {"format": "pt"})
    found = LlamaForCausalLM.from_pretrained(folder).medusa_heads[1][1].weight
same = torch.equal(found, lost)
print(f"loaded; the projection of head 1 is {'as it was saved' if same else 'another'}")
sys.exit(not same)
