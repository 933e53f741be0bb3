"""Head 0 is documented at offset 1 and drafts at offset 2. With rotalabs-accel."""

import sys

import torch
from rotalabs_accel.speculative import generate_candidates

# "head_logits[0] also predicts position +1": such a head, wholly right, is the base's own choice.
base = torch.zeros(1, 1, 12)
base[..., 7] = 1
candidates, _ = generate_candidates(base, [base], num_candidates=1)
print(f"the base's choice, and the draft behind it: {candidates[0].tolist()}")
sys.exit(candidates[0].tolist() == [7, 7])
