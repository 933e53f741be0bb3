"""A logit that is no number is accepted. With torch and CHECKOUT."""

import importlib.util
import sys

import torch

spec = importlib.util.spec_from_file_location("utils", f"{sys.argv[1]}/medusa/model/utils.py")
utils = importlib.util.module_from_spec(spec)
spec.loader.exec_module(utils)

candidates = torch.tensor([[5, 7]])  # a root and one draft
logits = torch.zeros(1, 2, 16)
logits[0, 0, 7] = torch.nan  # the row that judges token 7 is broken at token 7
best, accepted = utils.evaluate_posterior(logits, candidates, 0)
print(f"accepted edges: {int(accepted)}")
sys.exit(int(accepted) == 1)
