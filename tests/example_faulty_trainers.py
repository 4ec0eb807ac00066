"""Trainers with one fault each, for `verify` to find."""

from collections.abc import Callable
from typing import Any

import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn

from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer
from dpprof.measure.trainers.per_sample.book_keeping import DPBookKeepingTrainer
from dpprof.measure.trainers.per_sample.mixed_ghost import DPMixedGhostTrainer
from dpprof.measure.trainers.reference import global_norm, naive_per_sample_gradients
from dpprof.measure.trainers.standard import StandardTrainer


class WrongNorm(DPSGDTrainer):
    """Clips by the largest norm of a parameter's gradient, not by that of all together."""

    def _clip(self) -> None:
        _add_weighted(self, self.clip_factor(_norms(self).amax(dim=1), self.max_grad_norm))


class AddsToTheNorm(DPSGDTrainer):
    """Clips by a formula of its own in the step, with a little more added to the norm than Opacus adds."""

    def _clip(self) -> None:
        norms = _norms(self).norm(dim=1)
        _add_weighted(self, (self.max_grad_norm / (norms + 1e-5)).clamp(max=1.0))


class LeaksOneSample(DPSGDTrainer):
    """Does not clip the second sample of a batch."""

    def _clip(self) -> None:
        factors = self.clip_factor(_norms(self).norm(dim=1), self.max_grad_norm)
        factors[1:2] = 1.0
        _add_weighted(self, factors)


class ClipsTheSum(DPSGDTrainer):
    """Clips the sum of the gradients in place of each one."""

    def _clip(self) -> None:
        sums = [gradients.sum(0).flatten() for gradients in self.optimizer.grad_samples]
        factor = self.clip_factor(torch.cat(sums).norm(), self.max_grad_norm)
        _add_weighted(self, factor.expand(self.num_samples))


class SameNoiseForParameters(DPSGDTrainer):
    """Adds noise that begins alike in every parameter."""

    def _add_noise(self) -> None:
        seed = int(torch.randint(1 << 30, (1,)))
        _add_noise_of(self, lambda p: torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)))
        self.optimizer.noise_multiplier = 0.0
        super()._add_noise()


class NoisePerRow(DPSGDTrainer):
    """Adds to each row of a matrix one number."""

    def _add_noise(self) -> None:
        _add_noise_of(self, lambda p: torch.randn(len(p), *[1] * (p.dim() - 1)))
        self.optimizer.noise_multiplier = 0.0
        super()._add_noise()


class NoiseTwice(DPSGDTrainer):
    """Adds noise twice."""

    def _add_noise(self) -> None:
        _add_noise_of(self, torch.randn_like)
        super()._add_noise()


class HalfTheNoise(DPSGDTrainer):
    """Adds noise of half the deviation."""

    share = 0.5

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more | {"noise_multiplier": self.share * more["noise_multiplier"]})


class NoNoise(HalfTheNoise):
    """Adds no noise."""

    share = 0.0


class NoiseForEachBatch(DPSGDTrainer):
    """With accumulation, adds noise once for each physical batch."""

    def _accumulate_clipped(self, loss: Tensor) -> None:
        super()._accumulate_clipped(loss)
        if self.optimizer._step_skip_queue and self.optimizer._step_skip_queue[-1]:
            for p in self.parameters:
                noise = torch.randn_like(p) * self.noise_multiplier * self.max_grad_norm
                p.summed_grad += noise  # type: ignore[attr-defined]


class NoiseOfPhysicalBatch(DPSGDTrainer):
    """With accumulation, its noise is scaled as if the logical batch were one physical batch."""

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> DPOptimizer:
        """With noise that is not divided by the number of physical batches."""
        wrapped = super().wrap_optimizer(optimizer)
        wrapped.noise_multiplier *= self.accumulation_steps
        return wrapped


class DropsALayer(DPSGDTrainer):
    """Leaves the last parameter out."""

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Without noise or gradient in one parameter."""
        before = self.parameters[-1].detach().clone()
        super().step(physical_batches)
        self.parameters[-1].grad = torch.zeros_like(before)
        self.parameters[-1].data.copy_(before)


class LosesAGradient(DPBookKeepingTrainer):
    """Loses the gradient of the last parameter, which noise then moves alone."""

    def _accumulate_clipped(self, loss: Tensor) -> None:
        super()._accumulate_clipped(loss)
        self.parameters[-1].grad = None


class SameNoise(DPSGDTrainer):
    """Adds the same noise in every step."""

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """With a generator that always begins alike."""
        torch.manual_seed(17)
        super().step(physical_batches)


class KeepsTheLastStep(DPSGDTrainer):
    """Adds the clipped sum of the step before."""

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """With what the last step left."""
        kept = [p.grad.clone() for p in self.parameters if p.grad is not None]
        super().step(physical_batches)
        for parameter, gradient in zip(self.parameters, kept, strict=False):
            assert parameter.grad is not None
            parameter.grad += gradient


class MovesTheFrozen(DPSGDTrainer):
    """Decays weights that are frozen."""

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """With a decay of all weights."""
        super().step(physical_batches)
        for parameter in self.model.parameters():
            if not parameter.requires_grad:
                parameter.data.mul_(0.999)


class StandsStill(DPSGDTrainer):
    """Puts the weights back after the step."""

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """With the weights of before."""
        before = [p.detach().clone() for p in self.parameters]
        super().step(physical_batches)
        for parameter, weights in zip(self.parameters, before, strict=True):
            parameter.data.copy_(weights)


class _StepsOnCopies:
    """Its optimizer steps on copies of the weights."""

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """With copies in its groups."""
        (group,) = optimizer.param_groups
        group["params"] = [nn.Parameter(p.detach().clone()) for p in group["params"]]
        return optimizer


class TrainsCopies(_StepsOnCopies, DPBookKeepingTrainer):
    """With privacy."""


class TrainsCopiesWithoutPrivacy(_StepsOnCopies, StandardTrainer):
    """Without privacy."""


# The faults of those below show in the models of `example_unusual` alone.


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


def _norms(trainer: DPSGDTrainer) -> Tensor:
    """Of each sample's gradient of each parameter, (B, P)."""
    return torch.stack([g.flatten(1).norm(dim=1) for g in trainer.optimizer.grad_samples], 1)


def _add_weighted(trainer: DPSGDTrainer, factors_B: Tensor) -> None:
    parameters: list[Any] = trainer.parameters
    for p in parameters:
        total = torch.einsum("i,i...", factors_B, p.grad_sample)
        p.summed_grad = total if p.summed_grad is None else p.summed_grad + total


def _add_noise_of(trainer: DPSGDTrainer, draw: Callable[[Tensor], Tensor]) -> None:
    parameters: list[Any] = trainer.parameters
    for p in parameters:
        p.summed_grad = p.summed_grad + draw(p).to(p) * trainer.noise_multiplier * trainer.max_grad_norm
