"""Padding is accepted as token 0. With torch and CHECKOUT."""

import importlib.util
import sys

import torch

spec = importlib.util.spec_from_file_location("utils", f"{sys.argv[1]}/medusa/model/utils.py")
utils = importlib.util.module_from_spec(spec)
spec.loader.exec_module(utils)

# Paths (1,0) and (0): the second is shorter, so its retrieval row ends in padding.
buffers = utils.generate_medusa_buffers([[0], [1], [1, 0]], "cpu")
slots, retrieval = buffers["tree_indices"], buffers["retrieve_indices"]
target, heads = torch.zeros(1, 1, 16), torch.zeros(2, 1, 1, 16)
target[..., 5] = 1  # the root
heads[0, ..., 7], heads[0, ..., 8], heads[1, ..., 9] = 2, 1, 1
candidates, packed = utils.generate_candidates(heads, target, slots, retrieval)
rows = torch.zeros(4, 16)  # rows of the root, of (0), of (1) and of (1,0)
rows[0, 7], rows[1, 0] = 1, 1  # behind the root the target says 7, and behind 7 it says 0
best, accepted = utils.evaluate_posterior(rows[retrieval], candidates, 0)

edges = int((retrieval[best] >= 0).sum()) - 1
print(f"retrieval {retrieval.tolist()}, candidates {candidates.tolist()}")
print(f"path {int(best)} has {edges} edge(s), accepted were {int(accepted)}")
print(f"rows committed behind a prefix of 10: {(retrieval[best, : accepted + 1] + 10).tolist()}")
sys.exit(int(accepted) > edges)
