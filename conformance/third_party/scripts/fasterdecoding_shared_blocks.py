"""Two residual blocks are one. With transformers 4.36.2 and CHECKOUT."""

import sys
import tempfile

from tokenizers import Tokenizer, models
from transformers import LlamaConfig, PreTrainedTokenizerFast

sys.path.insert(0, sys.argv[1])
from medusa.model.medusa_model import MedusaModelLlama

folder = tempfile.mkdtemp()  # the model loads a tokenizer from its own path
words = Tokenizer(models.WordLevel({"0": 0}, unk_token="0"))
PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
config = LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=16,
                     num_hidden_layers=1, num_attention_heads=2, name_or_path=folder,
                     medusa_num_heads=1, medusa_num_layers=2)  # fmt: skip
head = MedusaModelLlama(config).medusa_head[0]
print(f"block 0 is block 1: {head[0] is head[1]}")
count = sum(tensor.numel() for tensor in head.parameters())
print(f"parameters: {count}, of two blocks and a projection: {2 * (8 * 8 + 8) + 16 * 8}")
sys.exit(head[0] is head[1])
