"""Greedy decoding is not plain greedy decoding from the second round on. With rotalabs-accel."""

import sys
from types import SimpleNamespace

import torch
from rotalabs_accel.speculative import MedusaConfig, MedusaModel, medusa_decode
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=12, hidden_size=8, intermediate_size=16,
                                     num_hidden_layers=1, num_attention_heads=2))  # fmt: skip
for weight in model.parameters():
    torch.nn.init.normal_(weight)
plain = [1, 2, 3]
for _ in range(8):
    plain.append(int(model(torch.tensor([plain])).logits[0, -1].argmax()))
# A tokenizer whose text is its tokens; none of them ends a sequence.
numbers = SimpleNamespace(
    encode=lambda prompt, **_: torch.tensor([prompt]),
    decode=lambda tokens, **_: tokens.tolist(),
    eos_token_id=-1,
)
config = MedusaConfig(num_heads=2, max_new_tokens=8)
device = torch.device("cpu")
medusa = MedusaModel(model, num_heads=2)
output, _ = medusa_decode(medusa, model, numbers, [1, 2, 3], config, device)
print("plain ", plain[3:], "\nmedusa", output[3:11])
sys.exit(output[3:11] != plain[3:])
