"""`tree_choices` does not reach the drafter. With eagle-llm 1.2.1 and transformers==4.36.2."""

import json
import sys
import tempfile

import torch
from eagle.model.ea_model import EaModel, KVLlamaForCausalLM
from eagle.model.utils import generate_candidates, generate_tree_buffers
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
drafts, _, _, _, root = model(torch.tensor([[3, 4, 5]]), output_orig=True)
for tree in ([[0], [0, 0]], [[1], [1, 0]]):
    built = generate_tree_buffers(tree, "cpu")
    given = drafts, built["tree_indices"], built["retrieve_indices"], root, None
    packed = generate_candidates(*given)[2][0].tolist()
    print(f"{tree}: root, child and grandchild are {packed}")
drafted = int(drafts[0][2, 0])  # row 0: children of the root, 1: of node (0), 2: of node (1)
print(f"below node (1) the drafter had drafted {drafted}")
sys.exit(packed[2] != drafted)
