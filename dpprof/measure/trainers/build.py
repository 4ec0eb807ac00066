"""Creates the trainer of an experiment."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dpprof.config.devices import balance_of
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.training import ADAFACTOR, ADAMW, ADAMW_8BIT, SGD
from dpprof.measure.trainers.adamw_8bit import AdamW8bit
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.workloads.workload import Workload
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.registry import load
from dpprof.vocabulary.trainers import TRAINERS

_OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    SGD: torch.optim.SGD,
    ADAMW: torch.optim.AdamW,
    ADAFACTOR: torch.optim.Adafactor,
    ADAMW_8BIT: AdamW8bit,
}


def load_trainer(name: str) -> type[TrainerBase]:
    """Load the class of a listed trainer. Raises ImportError or AttributeError if it is not there."""
    return load(TRAINERS[name].target)


def import_trainers(wanted: str, say: Callable[[str], None]) -> None:
    """Import all listed trainers, so that resident memory compares; only the wanted one may raise."""
    for name, info in TRAINERS.items():
        try:
            importlib.import_module(info.target.partition(":")[0])
        except Exception as error:
            if name == wanted:
                raise
            say(f"{name} cannot be imported ({type(error).__name__}: {error}); this run does not need it")


def clip_rule(config: ExperimentConfig) -> Callable[[Tensor, float], Tensor]:
    """Return the configured trainer's clip factors as a function of norms, shape (P,), and C."""
    return partial(load_trainer(config.trainer).clip_factors, options=config.trainer_options)


def optimizer_of(config: ExperimentConfig) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """Return the configured optimizer's class and arguments."""
    # torch's own defaults. They depend on the parameters' device, which may differ in an estimate.
    foreach = config.device == "cuda" and config.optimizer in (SGD, ADAMW)
    params: dict[str, Any] = {"lr": config.lr, "foreach": foreach}
    if config.optimizer == SGD:
        params["momentum"] = config.momentum
    return _OPTIMIZERS[config.optimizer], params


def build_trainer(
    config: ExperimentConfig, workload: Workload, tensor_device: str | None = None
) -> TrainerBase:
    """Create the configured trainer over a workload's model, with tensors on `tensor_device` if given."""
    options = config.trainer_options
    own = {} if options is None else {"options": options}
    if config.parallel != NONE:
        own["parallel"] = config.parallel
    trainer = load_trainer(config.trainer)(
        workload.model,
        *optimizer_of(config),
        tensor_device or config.device,
        loss=workload.loss,
        batch_size=config.batch_size,
        accumulation_steps=config.accumulation_steps,
        precision=config.precision,
        noise_multiplier=config.noise_multiplier,
        max_grad_norm=config.max_grad_norm,
        loop=config.loop,
        poisson_sampling=config.poisson_sampling,
        **own,
    )
    trainer.device_type = config.device
    if config.is_estimate:
        trainer.balance = balance_of(config.device, "", config.estimating.target)
    return trainer
