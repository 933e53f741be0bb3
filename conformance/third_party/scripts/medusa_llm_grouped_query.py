"""The cache has no room for shared keys. With medusa-llm 0.1 and transformers==4.36.2."""

import sys

import torch
from medusa.model.kv_cache import initialize_past_key_values
from medusa.model.modeling_llama_kv import LlamaForCausalLM
from transformers import LlamaConfig

config = LlamaConfig(16, hidden_size=8, intermediate_size=8, num_hidden_layers=1)
config.num_attention_heads, config.num_key_value_heads = 4, 2
model = LlamaForCausalLM(config).eval()
prompt = torch.tensor([[3, 4, 5]])
print("without a cache:", tuple(model(prompt).logits.shape))
past, _, _ = initialize_past_key_values(model)
try:
    with torch.inference_mode():
        model(prompt, past_key_values=past)
except RuntimeError as error:
    sys.exit(f"with its own cache: {error}")
