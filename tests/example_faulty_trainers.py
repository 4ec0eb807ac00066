"""Trainers with one fault each, for `verify` to find: the flat trainer of Opacus, made wrong."""

from typing import Any

import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn

from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer
from dpprof.measure.trainers.per_sample.book_keeping import DPBookKeepingTrainer
from dpprof.measure.trainers.standard import StandardTrainer


class _WithOptimizer(DPSGDTrainer):
    """With an optimizer of this kind."""

    kind: type[DPOptimizer]

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> DPOptimizer:
        """With another class."""
        wrapped = super().wrap_optimizer(optimizer)
        wrapped.__class__ = self.kind
        return wrapped


class _LargestNorm(DPOptimizer):
    def clip_and_accumulate(self) -> None:
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in self.grad_samples], 1).amax(dim=1)
        factors = (self.max_grad_norm / (norms + 1e-6)).clamp(max=1.0)
        for p in self.params:
            _add(p, torch.einsum("i,i...", factors, p.grad_sample))


class WrongNorm(_WithOptimizer):
    """Clips by the largest norm of a parameter's gradient, not by that of all together."""

    kind = _LargestNorm


class NoNoise(DPSGDTrainer):
    """Adds no noise."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more | {"noise_multiplier": 0.0})


class HalfTheNoise(DPSGDTrainer):
    """Adds noise of half the deviation."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more | {"noise_multiplier": more["noise_multiplier"] / 2})


class _NoiseTwice(DPOptimizer):
    def add_noise(self) -> None:
        super().add_noise()
        for p in self.params:
            p.grad += torch.randn_like(p) * self.noise_multiplier * self.max_grad_norm


class NoiseTwice(_WithOptimizer):
    """Adds noise twice."""

    kind = _NoiseTwice


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


class _ClipsTheSum(DPOptimizer):
    def clip_and_accumulate(self) -> None:
        sums = [gradients.sum(0) for gradients in self.grad_samples]
        norm = torch.cat([total.flatten() for total in sums]).norm()
        for p, total in zip(self.params, sums, strict=True):
            _add(p, total / max(1.0, float(norm) / self.max_grad_norm))


class ClipsTheSum(_WithOptimizer):
    """Clips the sum of the gradients in place of each one."""

    kind = _ClipsTheSum


class _LeaksOneSample(DPOptimizer):
    def clip_and_accumulate(self) -> None:
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in self.grad_samples], 1).norm(dim=1)
        factors = (self.max_grad_norm / (norms + 1e-6)).clamp(max=1.0)
        factors[1:2] = 1.0
        for p in self.params:
            _add(p, torch.einsum("i,i...", factors, p.grad_sample))


class LeaksOneSample(_WithOptimizer):
    """Does not clip the second sample of a batch."""

    kind = _LeaksOneSample


class SameNoise(DPSGDTrainer):
    """Adds the same noise in every step."""

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """With a generator that always begins alike."""
        torch.manual_seed(17)
        super().step(physical_batches)


class _SameNoiseForParameters(DPOptimizer):
    def add_noise(self) -> None:
        seed = int(torch.randint(1 << 30, (1,)))
        for p in self.params:
            generator = torch.Generator().manual_seed(seed)
            drawn = torch.randn(p.shape, generator=generator)
            p.grad = p.summed_grad + drawn.to(p) * self.noise_multiplier * self.max_grad_norm


class SameNoiseForParameters(_WithOptimizer):
    """Adds noise that begins alike in every parameter."""

    kind = _SameNoiseForParameters


class _NoisePerRow(DPOptimizer):
    def add_noise(self) -> None:
        for p in self.params:
            drawn = torch.randn(len(p), *[1] * (p.dim() - 1)).to(p).expand_as(p)
            p.grad = p.summed_grad + drawn * self.noise_multiplier * self.max_grad_norm


class NoisePerRow(_WithOptimizer):
    """Adds to each row of a matrix one number."""

    kind = _NoisePerRow


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


class TrainsCopies(DPBookKeepingTrainer):
    """Its optimizer steps on copies of the weights."""

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """With copies in its groups."""
        return _with_copies(optimizer)


class TrainsCopiesWithoutPrivacy(StandardTrainer):
    """The same without privacy."""

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """With copies in its groups."""
        return _with_copies(optimizer)


def _with_copies(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    (group,) = optimizer.param_groups
    group["params"] = [nn.Parameter(p.detach().clone()) for p in group["params"]]
    return optimizer


def _add(parameter: Any, total: Tensor) -> None:
    parameter.summed_grad = total if parameter.summed_grad is None else parameter.summed_grad + total
