"""Trainers with one fault each that shows in the models of `example_unusual` alone, for `verify` to find."""

from typing import Any

import torch
from torch import Tensor, nn

from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer
from dpprof.measure.trainers.per_sample.book_keeping import DPBookKeepingTrainer
from dpprof.measure.trainers.per_sample.mixed_ghost import DPMixedGhostTrainer
from dpprof.measure.trainers.reference import global_norm, naive_per_sample_gradients


class ComplexNoise(DPSGDTrainer):
    """Draws complex noise as torch does: it has the variance of one real number, half of it in each part."""

    def __init__(self, *args: Any, **more: Any) -> None:
        TrainerBase.__init__(self, *args, **more)


class OwnComplexNoise(DPBookKeepingTrainer):
    """The same, where dpprof draws."""

    def _add_noise_to(self, pieces: list[Tensor]) -> None:
        for piece in pieces:
            piece += (
                torch.randn_like(piece) * self.noise_multiplier * self.max_grad_norm / self.logical_batch_size
            )


class NoiseInTheRealPart(DPBookKeepingTrainer):
    """Leaves imaginary parts without noise."""

    def _add_noise_to(self, pieces: list[Tensor]) -> None:
        super()._add_noise_to([piece.real for piece in pieces])


class TakesRowsForSamples(DPBookKeepingTrainer):
    """Goes by the first dimension alone in telling which tensors begin with the batch."""

    def _try(self, batch: Any, size: int) -> None: ...


class TakesRowsForSamplesTwice(DPMixedGhostTrainer):
    """The same, in two backward passes."""

    _try = TakesRowsForSamples._try


class Naive(TrainerBase):
    """DP-SGD by a loop over samples, right by inspection."""

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Without phases."""
        totals = [torch.zeros_like(p) for p in self.parameters]
        for batch in physical_batches:
            with torch.no_grad():
                self.compute_losses(batch)
            for sample in naive_per_sample_gradients(self.model, self.loss, batch, self.num_samples):
                factor = self.clip_factor(global_norm(sample), self.max_grad_norm)
                for total, gradient in zip(totals, sample, strict=True):
                    total += factor * gradient
        for parameter, total in zip(self.parameters, totals, strict=True):
            noise = torch.randn_like(total) * self.noise_multiplier * self.max_grad_norm
            parameter.grad = (total + noise) / (self.batch_size * self.accumulation_steps)
        self.optimizer.step()


class LosesComputedWeights(Naive):
    """No gradient comes to what hooks compute weights from: weight norm, pruning."""

    def wrap_model(self) -> nn.Module:
        """With a hook that cuts the computed weights off."""

        def cut(module: nn.Module, args: Any) -> None:
            for name, value in list(vars(module).items()):
                if isinstance(value, Tensor):
                    setattr(module, name, value.detach())

        for module in self.model.modules():
            module.register_forward_pre_hook(cut)
        return self.model


class LosesTheTiedHead(Naive):
    """The embedding's weight gets the gradient of the embedding alone."""

    def wrap_model(self) -> nn.Module:
        """With the head cut off."""
        model: Any = self.model
        model.head = model.embedding.weight.detach
        return self.model
