"""`fast=False` cannot be decoded with. With torch and CHECKOUT."""

import importlib.util
import sys

import torch

spec = importlib.util.spec_from_file_location("utils", f"{sys.argv[1]}/medusa/model/utils.py")
utils = importlib.util.module_from_spec(spec)
spec.loader.exec_module(utils)

logits, candidates = torch.zeros(1, 2, 16), torch.tensor([[5, 7]])
try:
    utils.evaluate_posterior(logits, candidates, 0.7, sampling="typical", fast=False)
except TypeError as error:
    sys.exit(f"TypeError: {error}")
