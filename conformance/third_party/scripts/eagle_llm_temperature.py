"""The token behind an accepted path ignores the temperature. With eagle-llm 1.2.1."""

import random
import sys

import torch
from eagle.model.utils import evaluate_posterior, prepare_logits_processor

random.seed(0)
candidates = torch.tensor([[5, 0]])  # a root and one draft
drafted = torch.tensor([[1.0, 1e-9]])  # so unlikely a draft that it is accepted for sure
logits = torch.tensor([[[9.0, 0, 0], [2.0, 1, 0]]])
halved = prepare_logits_processor(temperature=0.5)
given = logits, candidates, halved, drafted, None, None, None, None
_, accepted, law = evaluate_posterior(*given)
asked = torch.softmax(logits[0, 1] / 0.5, 0)
print(f"accepted {int(accepted)} edge; the next token is drawn from {law.tolist()}")
print(f"softmax(logits / 0.5) is {asked.tolist()}")
sys.exit(not torch.allclose(law, asked))
