"""Labels that are the tokens themselves train heads one token too near. With nvidia-modelopt."""

import sys

import modelopt.torch.speculative as mtsp
import torch
from transformers import LlamaConfig, LlamaForCausalLM

base = LlamaForCausalLM(LlamaConfig(vocab_size=99, hidden_size=8, intermediate_size=16,
                                    num_hidden_layers=1, num_attention_heads=2))  # fmt: skip
model = mtsp.convert(base, [("medusa", {"medusa_num_heads": 2, "medusa_num_layers": 1})])
seen = []
torch.nn.modules.module.register_module_forward_pre_hook(
    lambda module, given: (
        seen.append(given[1].tolist()) if isinstance(module, torch.nn.CrossEntropyLoss) else None
    )
)
tokens = torch.arange(10, 18)[None]
# As the transformers library takes labels of a causal model, which it moves by one itself.
model(tokens, labels=tokens.clone())
near = 0
for head, labels in enumerate(seen):
    offset = labels[0] - 10
    print(f"head {head}: row 0 learns token {offset}, and is to guess token {head + 2}")
    near += offset < head + 2
sys.exit(bool(near))
