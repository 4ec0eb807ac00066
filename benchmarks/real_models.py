"""What fine-tuning a Hugging Face model costs: all parameters, and adapters alone.

    python benchmarks/real_models.py > docs/results/real_models_cpu.md

GPT-2 at its full width with two layers, ResNet-50 and ViT-B/16, every default trainer; one process, and in
every round each trainer does one step. Peaks and FLOPs come from the ledger, to the byte. About a quarter of
an hour on 2 cores; run it on a machine that is idle.
"""

from typing import Any

import opacus
import peft
import torch
import transformers
from trainers import made_by, rows, table, with_default_trainers

NUM_ROUNDS = 15
GPT2 = {"workload": "huggingface:gpt2", "model_config": "n_layer=2", "batch_size": 4, "seq_len": 128}
VIT = {"workload": "huggingface:vit-base", "image_size": 64, "batch_size": 4}
CELLS: dict[str, dict[str, Any]] = {
    "gpt2 with two layers, batch 4, sequence 128: all parameters": GPT2,
    "gpt2 with two layers, batch 4, sequence 128: LoRA of rank 8": GPT2 | {"train": "lora"},
    "resnet-50 with GroupNorm, batch 4, images of 64 x 64": {
        "workload": "huggingface:resnet-50",
        "image_size": 64,
        "batch_size": 4,
    },
    "vit-base, batch 4, images of 64 x 64: all parameters": VIT,
    "vit-base, batch 4, images of 64 x 64: LoRA of rank 8": VIT | {"train": "lora"},
}


def main() -> None:
    print("# What fine-tuning Hugging Face models costs on a CPU\n")
    print(made_by("real_models.py", NUM_ROUNDS, (torch, opacus, transformers, peft)))
    print("x is the ratio to standard training of the same parameters. GFLOP leaves attention out.\n")
    for cell, settings in CELLS.items():
        print(f"## {cell}\n\n{table(rows(with_default_trainers(settings), NUM_ROUNDS))}", flush=True)


if __name__ == "__main__":
    main()
