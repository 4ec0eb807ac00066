"""TRL's SFTTrainer on a small GPT-2, tokens ready-made. `dpprof watch examples/own_loops/trl_sft.py`."""

from tempfile import mkdtemp

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

torch.manual_seed(0)
words = {f"w{number}": number for number in range(199)} | {"<pad>": 199}
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(WordLevel(words, unk_token="<pad>")), pad_token="<pad>", eos_token="<pad>"
)
config = GPT2Config()
config.update({"vocab_size": 200, "n_positions": 32, "n_embd": 64, "n_layer": 2, "n_head": 4})
arguments = SFTConfig(mkdtemp(), per_device_train_batch_size=4, report_to="none", use_cpu=True, seed=0)
trainer = SFTTrainer(
    GPT2LMHeadModel(config),
    arguments,
    train_dataset=Dataset.from_dict({"input_ids": torch.randint(199, (96, 32)).tolist()}),
    processing_class=tokenizer,
)
print(f"loss {trainer.train().training_loss:.6f}")
