"""More tokens than `max_new_tokens`, and tokens behind the end of the sequence."""

import sys
from types import SimpleNamespace

import torch
from rotalabs_accel.speculative import MedusaConfig, MedusaModel, medusa_decode
from transformers import LlamaConfig, LlamaForCausalLM

# With one token in the vocabulary every choice is token 0, so every draft is accepted.
model = LlamaForCausalLM(LlamaConfig(vocab_size=1, hidden_size=8, intermediate_size=16,
                                     num_hidden_layers=1, num_attention_heads=2))  # fmt: skip
medusa = MedusaModel(model, num_heads=2)


def decode(end, most):
    """New tokens; the tokenizer's text is its tokens."""
    numbers = SimpleNamespace(
        encode=lambda prompt, **_: torch.tensor([prompt]),
        decode=lambda tokens, **_: tokens.tolist()[3:],
        eos_token_id=end,
    )
    config = MedusaConfig(num_heads=2, max_new_tokens=most)
    return medusa_decode(medusa, model, numbers, [0, 0, 0], config, torch.device("cpu"))[0]


many, ended = decode(end=-1, most=2), decode(end=0, most=9)
print(f"asked for 2: {many}", f"ends at the first 0: {ended}", sep="\n")
sys.exit(len(many) > 2 or len(ended) > 1)
