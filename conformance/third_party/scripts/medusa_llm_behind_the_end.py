"""Text goes on behind the end of sequence. With medusa-llm 0.1 and transformers==4.36.2."""

import sys
import tempfile

import torch
from medusa.model.medusa_model import MedusaModel
from medusa.model.modeling_llama_kv import LlamaForCausalLM
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, PreTrainedTokenizerFast

folder = tempfile.mkdtemp()
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(6)}, unk_token="w5"))
PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w2").save_pretrained(folder)
config = LlamaConfig(6, hidden_size=8, intermediate_size=8, num_hidden_layers=1)
config.num_attention_heads = config.num_key_value_heads = 1
model = MedusaModel(LlamaForCausalLM(config), 2, 1, folder).eval()
layer, base = model.base_model.model.layers[0], model.base_model
with torch.no_grad():  # word t is followed by word t + 1, and the heads know it
    layer.self_attn.o_proj.weight.zero_()
    layer.mlp.down_proj.weight.zero_()
    base.model.embed_tokens.weight.copy_(torch.eye(6, 8))
    for shift, rows in enumerate([base.lm_head, *(h[-1] for h in model.medusa_head)], 1):
        rows.weight.copy_(torch.eye(8).roll(shift, 0)[:6])
for step in model.medusa_generate(torch.tensor([[0]]), medusa_choices=[1, 1, 1]):
    print(f"{step['text']!r}, and w2 ends the sequence")
sys.exit("w3" in step["text"])
