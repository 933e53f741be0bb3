"""Two residual blocks are one. With medusa-llm 0.1 and transformers==4.36.2."""

import sys
import tempfile

import torch
from medusa.model.medusa_model import MedusaModel
from medusa.model.modeling_llama_kv import LlamaForCausalLM
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, PreTrainedTokenizerFast

folder = tempfile.mkdtemp()  # the model loads a tokenizer
words = Tokenizer(models.WordLevel({"w": 0}, unk_token="w"))
PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
base = LlamaForCausalLM(
    LlamaConfig(8, hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1)
)
head = MedusaModel(base, 1, 2, folder).medusa_head[0]  # one head of two blocks
state = head.state_dict()
state["0.linear.weight"], state["1.linear.weight"] = torch.eye(4), 2 * torch.eye(4)
print(head.load_state_dict(state))
held = float(head[0].linear.weight[0, 0]), float(head[1].linear.weight[0, 0])
print(f"the blocks were given 1 and 2, and hold {held[0]:g} and {held[1]:g}")
sys.exit(held != (1, 2))
