"""A plain pass behind a generation sees the tree. With medusa-llm 0.1, transformers==4.36.2."""

import sys
import tempfile

import torch
from medusa.model.medusa_model import MedusaModel
from medusa.model.modeling_llama_kv import LlamaForCausalLM
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, PreTrainedTokenizerFast

folder = tempfile.mkdtemp()
words = Tokenizer(models.WordLevel({"w": 0, "end": 1}, unk_token="w"))
PreTrainedTokenizerFast(tokenizer_object=words, eos_token="end").save_pretrained(folder)
torch.manual_seed(0)
config = LlamaConfig(16, hidden_size=8, intermediate_size=8, num_hidden_layers=1)
config.num_attention_heads = config.num_key_value_heads = 1
model = MedusaModel(LlamaForCausalLM(config), 2, 1, folder).eval()
prompt = torch.tensor([[3, 4, 5, 6, 7, 8, 9, 10]])
with torch.inference_mode():
    before = model.base_model(prompt).logits
    for _ in model.medusa_generate(prompt, max_steps=2, medusa_choices=[1, 2, 2]):
        pass
    apart = float((model.base_model(prompt).logits - before).abs().max())
print(f"the base model's logits for the same prompt lie {apart:.3g} apart")
sys.exit(apart > 1e-3)
