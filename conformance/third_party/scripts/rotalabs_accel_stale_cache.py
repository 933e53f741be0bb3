"""The cache that `medusa_decode` hands from round to round, and what its second pass then says."""

import sys

import torch
from rotalabs_accel.speculative import verify_candidates
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(2)
model = LlamaForCausalLM(LlamaConfig(vocab_size=12, hidden_size=8, intermediate_size=16,
                                     num_hidden_layers=1, num_attention_heads=2))  # fmt: skip
for weight in model.parameters():
    torch.nn.init.normal_(weight)
prefix, drafts = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5, 6]])
accepted, _, cache = verify_candidates(model, prefix, drafts, None)
print(f"round 1: {prefix.shape[1]} + {len(accepted)} tokens, cache {cache.get_seq_length()} rows")
# The loop's next call: every token so far, and the cache that holds them and the rejected ones.
tokens = torch.cat([prefix, accepted[None]], dim=1)
again, _, cache = verify_candidates(model, tokens, drafts, cache)
fresh, _, _ = verify_candidates(model, tokens, drafts, None)
print(f"round 2: {tokens.shape[1]} tokens and 3 drafts, cache {cache.get_seq_length()} rows")
print(f"accepted {again.tolist()}, without a cache {fresh.tolist()}")
sys.exit(again.tolist() != fresh.tolist())
