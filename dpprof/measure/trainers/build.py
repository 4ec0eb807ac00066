"""From an experiment's settings to its trainer."""

from typing import Any

import torch

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.workloads.workload import Workload
from dpprof.vocabulary.registry import load
from dpprof.vocabulary.trainers import TRAINERS

_OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


def load_trainer(name: str) -> type[TrainerBase]:
    """The class of a listed trainer."""
    trainer: type[TrainerBase] = load(TRAINERS[name].target)
    return trainer


def build_trainer(config: ExperimentConfig, workload: Workload, place: str | None = None) -> TrainerBase:
    """The configured trainer over a workload's model; `place` is where tensors are, if not on its device."""
    # As torch itself chooses by the device of the parameters, which may be elsewhere for an estimate.
    params: dict[str, Any] = {"lr": config.lr, "foreach": config.device == "cuda"}
    if config.optimizer == "sgd":
        params["momentum"] = config.momentum
    return load_trainer(config.trainer)(
        workload.model,
        _OPTIMIZERS[config.optimizer],
        params,
        place or config.device,
        loss=workload.loss,
        batch_size=config.batch_size,
        accumulation_steps=config.accumulation_steps,
        precision=config.precision,
        noise_multiplier=config.noise_multiplier,
        max_grad_norm=config.max_grad_norm,
        loop=config.loop,
        poisson_sampling=config.poisson_sampling,
    )
