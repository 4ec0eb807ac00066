"""Flat clipping by other hooks of Opacus, and its other ways to clip."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from opacus.grad_sample import GradSampleHooks, GradSampleModule
from opacus.optimizers import AdaClipDPOptimizer, DPPerLayerOptimizer, adaclipoptimizer
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from dpprof.measure.trainers.nested import attributes
from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer
from dpprof.measure.trainers.watched_step import Trap, WatchedStep

_NO_BAG = (
    "{module}: Opacus does not take nn.EmbeddingBag under functorch: use nn.Embedding, and sum or average "
    "over the tokens"
)


class DPFunctorchTrainer(DPSGDTrainer):
    """Flat clipping with `grad_sample_mode="functorch"`: `vmap` of modules instead of Opacus's rules."""

    takes_channels_last = True

    def wrap_model(self) -> nn.Module:
        """Add hooks that only use `torch.func`."""
        wrapped: nn.Module = GradSampleModule(self.model, force_functorch=True)
        return wrapped

    @classmethod
    def foresee(cls, step: WatchedStep) -> list[Trap]:
        """Leave out the limits of Opacus's rules, and add one of functorch."""
        of_rules = ("norm_bias", "bag", "bag_on_fakes", "channels_last")
        found = [trap for trap in super().foresee(step) if trap.name not in of_rules]
        bags = [m for m in step.model.modules() if isinstance(m, nn.EmbeddingBag) and m.weight.requires_grad]
        paths = [step.path(bag) for bag in bags]
        return [*found, *(Trap("bag_under_functorch", _NO_BAG.format(module=path), path) for path in paths)]


class DPNonWrappingTrainer(DPSGDTrainer):
    """Flat clipping with `wrap_model=False`: hooks like `GradSampleModule`'s, on the unwrapped model."""

    def wrap_model(self) -> nn.Module:
        """Add hooks that compute per-sample gradients."""
        self.hooks = GradSampleHooks(self.model)
        return self.model

    @contextmanager
    def unhooked(self) -> Iterator[None]:
        """Disable the hooks."""
        with patch.object(self.hooks, "hooks_enabled", False):
            yield


class DPPerLayerClippingTrainer(DPSGDTrainer):
    """Per-layer clipping (McMahan et al. 2018, section 3.2; `clipping="per_layer"` of Opacus).

    Each of P parameters has its gradient clipped to C / sqrt(P), so that no sample's gradient exceeds C. The
    noise is that of flat clipping, the sum is not.
    """

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> DPPerLayerOptimizer:
        """Wrap the optimizer, with the same norm for every parameter."""
        return DPPerLayerOptimizer(
            optimizer,
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=[_of_one(self.max_grad_norm, len(self.parameters))] * len(self.parameters),
            expected_batch_size=self.batch_size * self.accumulation_steps,
        )

    def _clip(self) -> None:
        """Raise ValueError for what flat clipping could not stack, and this would clip wrongly."""
        if len({len(samples) for _, samples in attributes(self.model, "grad_sample")}) > 1:
            raise ValueError("parameters have per-sample gradients of different numbers of samples")
        super()._clip()

    @classmethod
    def clip_factors(cls, norms: Tensor, max_grad_norm: float, options: Any) -> Tensor:
        """Return factors from each parameter's own norm."""
        return cls.clip_factor(norms, _of_one(max_grad_norm, len(norms)))

    @classmethod
    @contextmanager
    def on_fake_tensors(cls) -> Iterator[None]:
        """Compute the norm of the list of norms, which the optimizer reads, on real tensors."""
        made = unset_fake_temporarily()(DPPerLayerOptimizer.__init__)
        with super().on_fake_tensors(), patch.object(DPPerLayerOptimizer, "__init__", made):
            yield


def _of_one(max_grad_norm: float, num_parameters: int) -> float:
    return max_grad_norm / math.sqrt(num_parameters)


# As Andrew et al. 2021 recommend: quantile, learning rate, and noise on the number of unclipped samples over
# the batch size. None of them changes the cost of a step.
_QUANTILE, _LEARNING_RATE, _NOISE_SHARE = 0.5, 0.2, 1 / 20
_LOWEST, _HIGHEST = 1e-8, 1e8


class DPAdaptiveClippingTrainer(DPSGDTrainer):
    """Adaptive clipping (Andrew et al. 2021, algorithm 1; `clipping="adaptive"` of Opacus).

    C begins at `max_grad_norm` and moves after each step so that half of the samples are clipped. The number
    of unclipped samples is published with noise, so the gradients get a little more (theorem 1).
    """

    optimizer: AdaClipDPOptimizer

    @staticmethod
    def noise_deviation(noise_multiplier: float, max_grad_norm: float, batch_size: int) -> float:
        """Make up for the share of the privacy that the count takes: a larger deviation."""
        if noise_multiplier == 0:
            return 0.0
        rest = noise_multiplier**-2 - (2 * _unclipped_num_std(noise_multiplier, batch_size)) ** -2
        return max_grad_norm / math.sqrt(rest)

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> AdaClipDPOptimizer:
        """Wrap the optimizer by one that clips, adds noise and moves the clipping norm."""
        return AdaClipDPOptimizer(
            optimizer,
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            expected_batch_size=self.batch_size * self.accumulation_steps,
            target_unclipped_quantile=_QUANTILE,
            clipbound_learning_rate=_LEARNING_RATE,
            max_clipbound=_HIGHEST,
            min_clipbound=_LOWEST,
            unclipped_num_std=_unclipped_num_std(self.noise_multiplier, self.batch_size),
        )

    def _add_noise(self) -> None:
        """Also set the next clipping norm, as `AdaClipDPOptimizer.pre_step` does."""
        super()._add_noise()
        self.optimizer.update_max_grad_norm()

    @classmethod
    @contextmanager
    def on_fake_tensors(cls) -> Iterator[None]:
        """Keep the clipping norm, since the optimizer would read the number of unclipped samples."""
        with (
            super().on_fake_tensors(),
            patch.object(adaclipoptimizer, "float", lambda count: 0.0, create=True),
            patch.object(AdaClipDPOptimizer, "update_max_grad_norm", _compute_norm_only),
        ):
            yield


def _compute_norm_only(optimizer: AdaClipDPOptimizer) -> None:
    """Do Opacus's first computation, kept as long as the norm would be."""
    unclipped_frac = optimizer.unclipped_num / optimizer.sample_size
    optimizer.next_max_grad_norm = optimizer.max_grad_norm * torch.exp(
        -optimizer.clipbound_learning_rate * (unclipped_frac - optimizer.target_unclipped_quantile)
    )


def _unclipped_num_std(noise_multiplier: float, batch_size: int) -> float:
    """Standard deviation of the noise on the number of unclipped samples.

    Small batches get more than recommended, so that gradients need at most 1.15 times the noise.
    """
    return max(_NOISE_SHARE * batch_size, noise_multiplier)
