"""A logit that is no number is accepted. With eagle-llm 1.2.1, torch and transformers."""

import sys

import torch
from eagle.model.utils import evaluate_posterior

candidates = torch.tensor([[5, 7]])  # a root and one draft
logits = torch.zeros(1, 2, 16)
logits[0, 0, 7] = torch.nan  # the row that judges token 7 is broken at token 7
best, accepted, _ = evaluate_posterior(logits, candidates, *[None] * 6)
print(f"accepted edges: {int(accepted)}")
sys.exit(int(accepted) == 1)
