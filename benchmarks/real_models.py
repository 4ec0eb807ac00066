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
from trainers import Row, built, made_by, row_of, table, timed

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment
from dpprof.config.measuring import MeasuringConfig
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, short_name

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


def configs(cell: str) -> dict[str, ExperimentConfig]:
    """The experiments of a cell by the trainer's short name."""
    return {
        short_name(trainer): parse_experiment(
            CELLS[cell] | {"trainer": trainer, "device": "cpu"}, MeasuringConfig
        ).resolve(cuda_available=False)
        for trainer in DEFAULT_TRAINERS
    }


def rows(cell: str) -> list[Row]:
    """Every trainer of a cell."""
    planned = configs(cell)
    seconds = timed({name: built(config) for name, config in planned.items()}, NUM_ROUNDS)
    return [row_of(name, config, seconds[name]) for name, config in planned.items()]


def main() -> None:
    print("# What fine-tuning Hugging Face models costs on a CPU\n")
    print(made_by("real_models.py", NUM_ROUNDS, (torch, opacus, transformers, peft)))
    print("x is the ratio to standard training of the same parameters. GFLOP leaves attention out.\n")
    for cell in CELLS:
        print(f"## {cell}\n\n{table(rows(cell))}", flush=True)


if __name__ == "__main__":
    main()
