"""Steps of the built-in trainers are bitwise those of Opacus."""

import itertools
from typing import Any

import pytest
import torch
from example_trainers import CONFIG, make, weights
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import nn

from dpprof.measure.workloads.workload import build_workload
from dpprof.vocabulary.trainers import BUILT_IN

PRIVATE = [info.name for info in BUILT_IN if ".opacus." in info.target and info.is_default]


def opacus_flat(model: nn.Module, inner: torch.optim.Optimizer, batch: Any, wrapped: list[Any]) -> None:
    """One step of flat clipping as a user of Opacus writes it."""
    if not wrapped:
        wrapped += [
            GradSampleModule(model),
            DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=0.3, expected_batch_size=3),
        ]
    module, optimizer = wrapped
    ids, labels = batch
    optimizer.zero_grad()
    logits = module(ids)
    losses = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    losses.view(labels.shape).mean(dim=1).mean().backward()
    optimizer.step()


def opacus_fast(
    model: nn.Module, inner: torch.optim.Optimizer, batch: Any, wrapped: list[Any], ghost: bool
) -> None:
    """One step of fast gradient or ghost clipping as a user of Opacus writes it."""
    if not wrapped:
        module = GradSampleModuleFastGradientClipping(model, max_grad_norm=0.3, use_ghost_clipping=ghost)
        optimizer = DPOptimizerFastGradientClipping(
            inner, noise_multiplier=1.0, max_grad_norm=0.3, expected_batch_size=3
        )
        wrapped += [module, optimizer, DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss())]
    module, optimizer, criterion = wrapped
    ids, labels = batch
    optimizer.zero_grad()
    criterion(module(ids).flatten(0, 1), labels.flatten(), shape=labels.shape).backward()
    optimizer.step()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("trainer", PRIVATE)
def test_step_is_bitwise_that_of_opacus(trainer: str, optimizer: str) -> None:
    """Steps taken apart into phases give exactly what Opacus's own `backward()` and `step()` give."""
    ours, batches = make(trainer, optimizer=optimizer, max_grad_norm=0.3)
    theirs = build_workload(CONFIG).model.train()
    cls: Any = torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW
    inner = cls(theirs.parameters(), lr=CONFIG.lr)
    wrapped: list[Any] = []
    for step, batch in enumerate(itertools.islice(batches, 3)):
        torch.manual_seed(step)
        ours.profile_step(batch)
        torch.manual_seed(step)
        if trainer == "DPSGDTrainer":
            opacus_flat(theirs, inner, batch, wrapped)
        else:
            opacus_fast(theirs, inner, batch, wrapped, ghost=trainer == "DPGhostClippingTrainer")
        for a, b in zip(weights(ours), theirs.parameters(), strict=True):
            assert torch.equal(a, b)
