"""A head of two layers has no residual connection. With rotalabs-accel."""

import sys

import torch
from rotalabs_accel.speculative import MedusaHead

head, hidden = MedusaHead(hidden_size=8, vocab_size=12, num_layers=2), torch.randn(1, 1, 8)
linear, activation, projection = head.head
branch, logits = activation(linear(hidden)), head(hidden)
print("logits are U SiLU(Wz + b):", torch.allclose(logits, projection(branch)))
print("logits are U (z + SiLU(Wz + b)):", torch.allclose(logits, projection(hidden + branch)))
sys.exit(not torch.allclose(logits, projection(hidden + branch)))
