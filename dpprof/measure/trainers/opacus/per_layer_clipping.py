"""DP-SGD that clips each parameter's gradient by itself."""

import math
from typing import Any

import torch
from opacus.optimizers import DPPerLayerOptimizer
from torch import Tensor

from dpprof.measure.trainers.nested import attributes
from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer
from dpprof.measure.trainers.opacus.traps import DifferentSamples


class DPPerLayerClippingTrainer(DPSGDTrainer):
    """Per-layer clipping (McMahan et al. 2018, section 3.2; `clipping="per_layer"` of Opacus): each of P
    parameters has its gradient clipped to C / sqrt(P), so that no sample's whole gradient exceeds C.

    That is another algorithm than flat clipping: the noise is the same, the sum is not.
    """

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> DPPerLayerOptimizer:
        """With the same norm for every parameter."""
        return DPPerLayerOptimizer(
            optimizer,
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=[_of_one(self.max_grad_norm, len(self.parameters))] * len(self.parameters),
            expected_batch_size=self.batch_size * self.accumulation_steps,
        )

    def _clip(self) -> None:
        """Raises DifferentSamples for what flat clipping could not stack, and this would clip wrongly."""
        if len({len(samples) for _, samples in attributes(self.model, "grad_sample")}) > 1:
            raise DifferentSamples("parameters have per-sample gradients of different numbers of samples")
        super()._clip()

    @classmethod
    def clip_factors(cls, norms: Tensor, max_grad_norm: float, options: Any) -> Tensor:
        """From each parameter's own norm."""
        return cls.clip_factor(norms, _of_one(max_grad_norm, len(norms)))


def _of_one(max_grad_norm: float, num_parameters: int) -> float:
    return max_grad_norm / math.sqrt(num_parameters)
