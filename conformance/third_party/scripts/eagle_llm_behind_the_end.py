"""Tokens go on behind the end of sequence. With eagle-llm 1.2.1 and transformers==4.36.2."""

import json
import sys
import tempfile

import torch
from eagle.model.ea_model import EaModel, KVLlamaForCausalLM
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, PreTrainedTokenizerFast

folder = tempfile.mkdtemp()
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(16)}, unk_token="w0"))
PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w7").save_pretrained(folder)
config = LlamaConfig(16, 16, 16, 1, 1, pad_token_id=0, max_position_embeddings=64)
with open(f"{folder}/config.json", "w") as file:
    json.dump(config.to_dict() | {"bias": False}, file)
model = EaModel(KVLlamaForCausalLM(config), folder, f"{folder}/config.json").eval()
with torch.no_grad():  # word t is followed by word t + 1, and the drafter knows it
    for layer in (model.base_model.model.layers[0], model.ea_layer.layers[0]):
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    for table in (model.base_model.model.embed_tokens, model.ea_layer.embed_tokens):
        table.weight.copy_(torch.eye(16))
    model.base_model.lm_head.weight.copy_(torch.eye(16).roll(1, 0))
    model.ea_layer.fc.weight.copy_(torch.eye(16, 32))
found = model.eagenerate(torch.tensor([[3, 4, 5]]))[0].tolist()
print(f"{found}, and 7 ends the sequence")
sys.exit(found[-1] != 7)
