"""Small trainers with their batches, and what is looked at in them."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.gradient_check import Case
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.build import build_trainer
from dpprof.measure.workloads.workload import build_workload
from dpprof.vocabulary.trainers import TRAINERS

CONFIG = ExperimentConfig(
    model_size="tiny", vocab_size=50, hidden_dim=16, num_layers=2, num_heads=2, batch_size=3, seq_len=8
).resolve(cuda_available=False)


def make(trainer: str, **changes: Any) -> tuple[TrainerBase, Any]:
    config = dataclasses.replace(CONFIG, trainer=trainer, **changes)
    workload = build_workload(config)
    return build_trainer(config, workload), iter(workload.batches)


def weights(trainer: TrainerBase) -> list[torch.Tensor]:
    return [p.detach().clone() for p in trainer.parameters]


def held(trainer: TrainerBase) -> dict[str, list[Tensor]]:
    return {category: [t for _, t in named] for category, named in trainer.held_tensors().items()}


class Phases(Observer):
    """The phases of a step, one after another."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def phase(self, name: str) -> Any:
        self.seen.append(name)
        return super().phase(name)


def taking(setting: str, names: Iterable[str] = TRAINERS) -> list[str]:
    """The trainers that are not limited to one value of a setting."""
    return [name for name in names if setting not in [limit.setting for limit in TRAINERS[name].limits]]


def gradient_error(config: ExperimentConfig, way: str) -> float:
    """Return the trainer's relative L2 error in `float64`, `float32` or `bfloat16`, without a verdict."""
    case = Case(config)
    return case.error(way, case.clipped_mean(case.per_sample_gradients()))
