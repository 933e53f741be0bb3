"""Text goes on behind the end of the sequence. With transformers 4.36.2 and CHECKOUT."""

import sys
import tempfile

import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, PreTrainedTokenizerFast

sys.path.insert(0, sys.argv[1])
from medusa.model.medusa_model import MedusaModelLlama

folder = tempfile.mkdtemp()
words = Tokenizer(models.WordLevel({str(n): n for n in range(12)}, unk_token="0"))
PreTrainedTokenizerFast(tokenizer_object=words, eos_token="5").save_pretrained(folder)
config = LlamaConfig(vocab_size=12, hidden_size=8, intermediate_size=16,
                     num_hidden_layers=1, num_attention_heads=2, name_or_path=folder,
                     medusa_num_heads=2, medusa_num_layers=1)  # fmt: skip
torch.manual_seed(4)
model = MedusaModelLlama(config).eval()
for weight in model.parameters():
    torch.nn.init.normal_(weight)
plain = []  # without its end, which a decoder of text leaves out
while (token := int(model(torch.tensor([[1, 2, 3, *plain]])).logits[0, -1].argmax())) != 5:
    plain.append(token)
tree = [[rank] for rank in range(10)]
for step in model.medusa_generate(torch.tensor([[1, 2, 3]]), medusa_choices=tree, max_steps=12):
    output = [int(word) for word in step["text"].split()]
sys.exit(f"plain  {plain}\nmedusa {output}" if output != plain else 0)
