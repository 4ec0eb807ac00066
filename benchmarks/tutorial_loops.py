"""The training loops of PyTorch's and Opacus's tutorials, with none of dpprof's trainers in them.

What `loop=documented` is held against: memory and traffic by `benchmarks/documented_loop.py` and
`tests/measure/trainers/test_documented_loop.py`, time by `benchmarks/bare_loop.py`.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.workloads.workload import Workload

AroundStep = Callable[[], AbstractContextManager[Any]]
Loop = Callable[[Iterable[Any], AroundStep], None]


class PerSampleLoss:
    """A workload's loss as Opacus wants a criterion: it changes `reduction`, which means nothing here."""

    reduction = "mean"

    def __init__(self, loss: Callable[[Any, Any], Tensor]) -> None:
        self.loss = loss

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        """One loss per sample, whatever `reduction` says."""
        return self.loss(outputs, targets)


def make_loop(config: ExperimentConfig, workload: Workload) -> Loop:
    """The tutorial's loop for the configured trainer: called with batches, it trains on them.

    All but fast gradient clipping are made by `make_private`; that one, which it cannot make, by the classes
    that Opacus documents for it. Each step runs within what `around_step` gives.
    """
    model = workload.model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=config.momentum)
    if config.trainer == "StandardTrainer":
        return average(model, optimizer, workload.loss)
    if config.trainer == "DPSGDTrainer":
        module, wrapped = private(config, model, optimizer)
        return average(module, wrapped, workload.loss)
    criterion: Any = PerSampleLoss(workload.loss)
    if config.trainer == "DPGhostClippingTrainer":
        return _per_sample(*private(config, model, optimizer, criterion=criterion, grad_sample_mode="ghost"))
    module = GradSampleModuleFastGradientClipping(
        model, max_grad_norm=config.max_grad_norm, use_ghost_clipping=False
    )
    wrapped = DPOptimizerFastGradientClipping(
        optimizer,
        noise_multiplier=config.noise_multiplier,
        max_grad_norm=config.max_grad_norm,
        expected_batch_size=config.batch_size,
    )
    return _per_sample(module, wrapped, DPLossFastGradientClipping(module, wrapped, criterion))


def private(
    config: ExperimentConfig, model: nn.Module, optimizer: torch.optim.Optimizer, **mode: Any
) -> tuple[Any, ...]:
    """What `make_private` makes but for the data loader: the batches come from elsewhere."""
    loader: Any = DataLoader(list(range(config.batch_size)), batch_size=config.batch_size)  # type: ignore
    *made, _ = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=config.noise_multiplier,
        poisson_sampling=False,
        **({"max_grad_norm": config.max_grad_norm} | mode),
    )
    return tuple(made)


def average(model: nn.Module, optimizer: Any, loss_per_sample: Callable[[Any, Any], Tensor]) -> Loop:
    """The loop whose loss is the average of the batch's."""

    def train(batches: Iterable[Any], around_step: AroundStep = nullcontext) -> None:
        for x, y in batches:
            with around_step():
                optimizer.zero_grad()
                out = _call(model, x)
                loss = loss_per_sample(out, y).mean()
                loss.backward()
                optimizer.step()

    return train


def _per_sample(model: nn.Module, optimizer: Any, criterion: Any) -> Loop:
    def train(batches: Iterable[Any], around_step: AroundStep = nullcontext) -> None:
        for x, y in batches:
            with around_step():
                optimizer.zero_grad()
                out = _call(model, x)
                loss = criterion(out, y)
                loss.backward()
                optimizer.step()

    return train


def _call(model: nn.Module, inputs: Any) -> Any:
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)
