"""DP-SGD that goes backward once for each sample: a trainer of one's own for dpprof."""

from typing import Any

import torch

from dpprof.measure.trainers.base import TrainerBase


class LoopTrainer(TrainerBase):
    """Clips and adds up one sample's gradient after the other (Abadi et al. 2016, algorithm 1)."""

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Take one optimizer step on the samples of all physical batches."""
        with self.phase("zero_grad"):
            self.optimizer.zero_grad()
            summed = [torch.zeros_like(p) for p in self.parameters]
        for batch in physical_batches:
            with self.phase("forward"):
                losses = self.compute_losses(batch)  # shape (B,)
                self.last_loss = losses.mean()
            with self.phase("backward"):
                for loss in losses:
                    gradients = torch.autograd.grad(loss, self.parameters, retain_graph=True)
                    norm = torch.stack([g.norm() for g in gradients]).norm()
                    factor = self.clip_factor(norm, self.max_grad_norm)
                    for total, gradient in zip(summed, gradients, strict=True):
                        total += factor * gradient
        with self.phase("noise"):
            deviation = self.noise_multiplier * self.max_grad_norm
            for parameter, total in zip(self.parameters, summed, strict=True):
                noise = deviation * torch.randn_like(total)
                parameter.grad = (total + noise) / (self.batch_size * self.accumulation_steps)
        with self.phase("optimizer_step"):
            self.optimizer.step()
