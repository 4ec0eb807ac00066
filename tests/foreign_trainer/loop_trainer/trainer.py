"""DP-SGD that goes backward once for every sample, and needs no library for it."""

from typing import Any

import torch
from torch import Tensor

from dpprof.measure.trainers.base import Held, TrainerBase


class LoopTrainer(TrainerBase):
    """One forward of the batch, one backward per sample (Abadi et al. 2016, algorithm 1).

    A sample's gradient is one row of a matrix, shape (B, P).
    """

    flat: Tensor | None = None
    summed: Tensor | None = None

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Per-sample gradients, their clipped sum, noise, and the optimizer's step."""
        with self.phase("zero_grad"):
            self.optimizer.zero_grad()
            self.flat = self.summed = None
        for batch in physical_batches:
            with self.phase("forward"):
                losses = self.compute_losses(batch)
                self.last_loss = losses.mean()
            with self.phase("per_sample_backward"):
                self.flat = self._per_sample_gradients(losses)
            with self.phase("clip"):
                self._add_clipped(self.flat)
                if self.options is None or self.options.free_per_sample:
                    self.flat = None
        with self.phase("noise"):
            self._finish_gradient()
        with self.phase("optimizer_step"):
            self.optimizer.step()

    def _per_sample_gradients(self, losses: Tensor) -> Tensor:
        """Row by row; the graph is kept until the last one."""
        parameters = self.parameters
        sizes = [p.numel() for p in parameters]
        self.flat = parameters[0].new_zeros(len(losses), sum(sizes))
        for i in range(len(losses)):
            losses[i].backward(retain_graph=i + 1 < len(losses))
            for parameter, row in zip(parameters, self.flat[i].split(sizes), strict=True):
                if parameter.grad is not None:
                    row.copy_(parameter.grad.flatten())
                parameter.grad = None
        return self.flat

    def _add_clipped(self, flat: Tensor) -> None:
        with self.observer.label_new("clip_factors", lambda shape: shape == flat.shape[:1]):
            factors = self.clip_factor(flat.norm(dim=1), self.max_grad_norm)
        clipped = factors @ flat
        self.summed = clipped if self.summed is None else self.summed.add_(clipped)

    def _finish_gradient(self) -> None:
        assert self.summed is not None
        with self.observer.label_new("noise"):
            noise = torch.randn_like(self.summed) * (self.noise_multiplier * self.max_grad_norm)
        self.summed.add_(noise).div_(self.batch_size * self.accumulation_steps)
        parts = self.summed.split([p.numel() for p in self.parameters])
        for parameter, part in zip(self.parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter).clone()
        self.summed = None

    def held_tensors(self) -> Held:
        """What every trainer holds, and the flat gradients."""
        held = super().held_tensors()
        if self.flat is not None:
            held["flat_gradients"] = [("all parameters", self.flat)]
        if self.summed is not None:
            held["summed_gradients"] = [("all parameters", self.summed)]
        return held

    def drop_gradients(self) -> None:
        """Let go of the flat gradients too."""
        super().drop_gradients()
        self.flat = self.summed = None
