"""A logit that is no number is accepted. With rotalabs-accel."""

import sys
from types import SimpleNamespace

import torch
from rotalabs_accel.speculative import verify_candidates

logits = torch.zeros(1, 2, 16)
logits[0, 0, 7] = torch.nan  # the row that judges token 7 is broken at token 7
broken = SimpleNamespace(logits=logits, past_key_values=None)
root, drafts = torch.tensor([[5]]), torch.tensor([[7]])
_, accepted, _ = verify_candidates(lambda *_, **__: broken, root, drafts)
print(f"accepted edges: {accepted}")
sys.exit(accepted == 1)
