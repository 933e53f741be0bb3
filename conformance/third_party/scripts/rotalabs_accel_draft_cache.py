"""The drafting pass misses accepted tokens. With rotalabs-accel."""

import sys

import torch
from rotalabs_accel.speculative import MedusaModel
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=12, hidden_size=8, intermediate_size=16,
                                     num_hidden_layers=1, num_attention_heads=2))  # fmt: skip
for weight in model.parameters():
    torch.nn.init.normal_(weight)
medusa = MedusaModel(model, num_heads=2)
_, _, cache = medusa(torch.tensor([[1, 2, 3]]))
# A round accepted 4, 5, 6; `medusa_decode` drafts the next from the last token and this cache.
tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
drafting, _, cache = medusa(tokens[:, -1:], past_key_values=cache)
whole, _, _ = medusa(tokens)
difference = float((drafting[0, -1] - whole[0, -1]).abs().max())
print(f"{tokens.shape[1]} tokens, cache of {cache.get_seq_length()} rows")
print(f"greatest difference of the base logits: {difference:.3g}")
sys.exit(difference > 1e-3)
