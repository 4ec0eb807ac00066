"""Steps of the built-in trainers are bitwise those of Opacus."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from example_trainers import CONFIG, make, weights
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from dpprof.measure.workloads.workload import build_workload
from dpprof.vocabulary.trainers import BUILT_IN

PRIVATE = [info.name for info in BUILT_IN if ".opacus." in info.target and info.is_default]


def opacus_step(trainer: str, model: nn.Module, inner: torch.optim.Optimizer) -> Callable[[Any], None]:
    """A step as a user of Opacus writes it."""
    how: dict[str, Any] = {"noise_multiplier": 1.0, "max_grad_norm": 0.3, "expected_batch_size": 3}
    module: Any
    if trainer == "DPSGDTrainer":
        module, optimizer = GradSampleModule(model), DPOptimizer(inner, **how)

        def loss_of(logits: Tensor, labels: Tensor) -> Any:
            losses = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
            return losses.view(labels.shape).mean(dim=1).mean()
    else:
        is_ghost = trainer == "DPGhostClippingTrainer"
        module = GradSampleModuleFastGradientClipping(model, max_grad_norm=0.3, use_ghost_clipping=is_ghost)
        optimizer = DPOptimizerFastGradientClipping(inner, **how)
        criterion = DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss())

        def loss_of(logits: Tensor, labels: Tensor) -> Any:
            return criterion(logits.flatten(0, 1), labels.flatten(), shape=labels.shape)

    def step(batch: Any) -> None:
        ids, labels = batch
        optimizer.zero_grad()
        loss_of(module(ids), labels).backward()
        optimizer.step()

    return step


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("trainer", PRIVATE)
def test_step_is_bitwise_that_of_opacus(trainer: str, optimizer: str) -> None:
    """Steps taken apart into phases give exactly what Opacus's own `backward()` and `step()` give."""
    ours, batches = make(trainer, optimizer=optimizer, max_grad_norm=0.3)
    theirs = build_workload(CONFIG).model.train()
    cls: Any = torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW
    step = opacus_step(trainer, theirs, cls(theirs.parameters(), lr=CONFIG.lr))
    for seed, batch in enumerate(itertools.islice(batches, 3)):
        torch.manual_seed(seed)
        ours.profile_step(batch)
        torch.manual_seed(seed)
        step(batch)
        for a, b in zip(weights(ours), theirs.parameters(), strict=True):
            assert torch.equal(a, b)
