"""A tree of twelve parents cannot be decoded. With eagle-llm 1.2.1, transformers==4.36.2."""

import json
import sys
import tempfile

import torch
from eagle.model.ea_model import EaModel, KVLlamaForCausalLM
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, PreTrainedTokenizerFast

folder = tempfile.mkdtemp()
words = Tokenizer(models.WordLevel({"w": 0, "end": 1}, unk_token="w"))
PreTrainedTokenizerFast(tokenizer_object=words, eos_token="end").save_pretrained(folder)
torch.manual_seed(0)
config = LlamaConfig(50, 8, 8, 1, 1, pad_token_id=0, max_position_embeddings=64)
with open(f"{folder}/config.json", "w") as file:
    json.dump(config.to_dict(), file)
model = EaModel(KVLlamaForCausalLM(config), folder, f"{folder}/config.json").eval()
prompt = torch.tensor([[3, 4, 5]])
ten = [[0], [1], *([0, rank] for rank in range(9))]  # parents: the root and node (0)
print(model.eagenerate(prompt, max_new_tokens=4, tree_choices=ten).tolist())
more = [*ten, *([0, rank, 0] for rank in range(9)), [1, 0]]  # nodes (0, r) and (1) as well
try:
    print(model.eagenerate(prompt, max_new_tokens=4, tree_choices=more).tolist())
except IndexError as error:
    sys.exit(f"IndexError: {error}")
