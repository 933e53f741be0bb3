"""A batch in which one head has no label loses every head's loss. With nvidia-modelopt."""

import sys

import modelopt.torch.speculative as mtsp
import torch
from transformers import LlamaConfig, LlamaForCausalLM

base = LlamaForCausalLM(LlamaConfig(vocab_size=12, hidden_size=8, intermediate_size=16,
                                    num_hidden_layers=1, num_attention_heads=2))  # fmt: skip
heads = {"medusa_num_heads": 3, "medusa_num_layers": 1}
model = mtsp.convert(base, [("medusa", heads)])
for tokens in ([1, 2, 3, 4, 5], [1, 2, 3, 4]):
    # As its data collator gives them: a row's label is the next token, and the last row has none.
    labels = torch.tensor([[*tokens[1:], -100]])
    loss = model(torch.tensor([tokens]), labels=labels).loss
    counts = [len(tokens) - head - 2 for head in range(3)]
    print(f"{len(tokens)} tokens, so many labels a head {counts}: loss {loss}")
sys.exit(bool(loss.isnan()))
