"""Opake's loop as a trainer of dpprof, and the models that `opake_vmap.py` trains with it.

From this folder: `dpprof sweep --trainers standard,bk,opake_loop:OPAKE`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torchopt
from opake.dpsgd.clipping import clipped_grad
from opake.dpsgd.noise import gaussian_noise
from opake.functional import make_functional
from opake.optimizers import sgd
from opake.random import key
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.nested import call
from dpprof.vocabulary.settings import setting
from dpprof.vocabulary.trainer_info import TrainerInfo


@dataclass(frozen=True)
class OpakeOptions:
    """The setting of Opake's loop."""

    microbatch_size: int = setting(0, "Samples whose gradients exist at once; 0 is all.", minimum=0)


class OpakeTrainer(TrainerBase):
    """The loop of Opake's README with its own SGD, without accumulation."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._model, self._weights = make_functional(self.model, disable_autograd_tracking=True)
        self._gradient, self._clip_state = clipped_grad(
            self._loss_of_one,
            clipping_norm=self.max_grad_norm,
            batch_argnums=(1, 2),
            normalize_by=self.batch_size,
            microbatch_size=self.options.microbatch_size or None,
        )
        noise = gaussian_noise(noise_multiplier=self.noise_multiplier, key=key(0))
        self._add_noise, self._noise_state = noise
        settings = self.optimizer.defaults
        self._sgd = sgd(lr=settings["lr"], momentum=settings["momentum"])
        self._sgd_state = self._sgd.init(self._weights)

    def _loss_of_one(self, weights: tuple[Tensor, ...], inputs: Any, target: Any) -> Tensor:
        inputs, target = tree_map(lambda tensor: tensor[None], (inputs, target))
        model: Any = partial(self._model, weights)
        return self.loss(call(model, inputs), target).squeeze(0)

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Do Opake's three calls; without noise, as in the gradient check, keep the gradient too."""
        ((inputs, targets),) = physical_batches
        with self.phase("clip"):
            clipped, self._clip_state = self._gradient(self._weights, inputs, targets, state=self._clip_state)
        with self.phase("noise"):
            noisy, self._noise_state = self._add_noise(clipped, self._noise_state)
        if not self.noise_multiplier:  # the update below works in place
            for parameter, gradient in zip(self.parameters, noisy.pytree, strict=True):
                parameter.grad = gradient.clone()
        with self.phase("optimizer_step"):
            updates, self._sgd_state = self._sgd.update(noisy, self._sgd_state, params=self._weights)
            self._weights = torchopt.apply_updates(self._weights, updates)


OPAKE = TrainerInfo(
    "OpakeTrainer",
    "opake",
    is_private=True,
    color="#7f3c8d",
    phases=("clip", "noise", "optimizer_step"),
    categories=(),
    target="opake_loop:OpakeTrainer",
    options=OpakeOptions,
    is_default=False,
)


def convolutions(config: ExperimentConfig) -> tuple[Any, ...]:
    """A net of four convolutions for images of 32 x 32 pixels."""
    layers: list[nn.Module] = []
    for into, out in ((3, 32), (32, 64), (64, 64), (64, 128)):
        layers += [nn.Conv2d(into, out, 3, stride=2, padding=1), nn.GroupNorm(16, out), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))

    def batches() -> Iterator[tuple[Tensor, Tensor]]:  # the same samples in batches of any size
        of_images, of_labels = (torch.Generator().manual_seed(config.seed + i) for i in range(2))
        while True:
            images = torch.randn(config.batch_size, 3, 32, 32, generator=of_images)
            yield images, torch.randint(10, (config.batch_size,), generator=of_labels)

    return model, batches(), partial(nn.functional.cross_entropy, reduction="none")


def many_small(config: ExperimentConfig) -> tuple[Any, ...]:
    """The authors' twelve layers of width 128."""
    return _perceptron(config, 12, 128)


def few_large(config: ExperimentConfig) -> tuple[Any, ...]:
    """The authors' two layers of width 4,096."""
    return _perceptron(config, 2, 4096)


def _perceptron(config: ExperimentConfig, depth: int, width: int) -> tuple[Any, ...]:
    layers = [(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(depth)]

    def batches() -> Iterator[tuple[Tensor, ...]]:
        while True:
            yield tuple(torch.randn(2, config.batch_size, config.seq_len, width).unbind())

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if len(outputs) == 1:  # under vmap, as the authors write it: the losses of all numbers take memory
            return nn.functional.mse_loss(outputs, targets)[None]
        return nn.functional.mse_loss(outputs, targets, reduction="none").mean((1, 2))

    return nn.Sequential(*(module for layer in layers for module in layer)), batches(), loss
