"""Hugging Face's Trainer on a small GPT-2. `dpprof watch examples/own_loops/hugging_face_trainer.py`."""

from tempfile import mkdtemp

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Random tokens, the same each time."""

    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(200, (32,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


torch.manual_seed(0)
config = GPT2Config()
config.update({"vocab_size": 200, "n_positions": 32, "n_embd": 64, "n_layer": 2, "n_head": 4})
model = GPT2LMHeadModel(config)
arguments = TrainingArguments(
    mkdtemp(), per_device_train_batch_size=4, report_to="none", use_cpu=True, seed=0
)
result = Trainer(model, arguments, train_dataset=Tokens()).train()
print(f"loss {result.training_loss:.6f}")
