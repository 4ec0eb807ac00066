"""DP-SGD whose clipping norm follows a quantile of the samples' norms."""

import math

import torch
from opacus.optimizers import AdaClipDPOptimizer

from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer

# As Andrew et al. 2021 recommend: the quantile, the learning rate, and the noise on the number of unclipped
# samples over the size of a batch. None of them changes what a step costs.
_QUANTILE, _LEARNING_RATE, _NOISE_SHARE = 0.5, 0.2, 1 / 20
_LOWEST, _HIGHEST = 1e-8, 1e8


class DPAdaptiveClippingTrainer(DPSGDTrainer):
    """Adaptive clipping (Andrew et al. 2021, algorithm 1; `clipping="adaptive"` of Opacus): `max_grad_norm`
    is where the clipping norm C begins; after each step C moves so that half of the samples are clipped.

    The number of unclipped samples is published with noise, and for that the gradients get a little more
    (theorem 1).
    """

    optimizer: AdaClipDPOptimizer

    @staticmethod
    def noise_deviation(noise_multiplier: float, max_grad_norm: float, batch_size: int) -> float:
        """With the share of the privacy that the count takes made up for."""
        if noise_multiplier == 0:
            return 0.0
        rest = noise_multiplier**-2 - (2 * _unclipped_num_std(noise_multiplier, batch_size)) ** -2
        return max_grad_norm / math.sqrt(rest)

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> AdaClipDPOptimizer:
        """The optimizer that clips, adds noise and moves the clipping norm."""
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
        """And, as `AdaClipDPOptimizer.pre_step` does, the next clipping norm."""
        super()._add_noise()
        self.optimizer.update_max_grad_norm()


def _unclipped_num_std(noise_multiplier: float, batch_size: int) -> float:
    """The deviation of the noise on the number of unclipped samples: small batches take more than is
    recommended, so that gradients need no more than 1.15 times the noise.
    """
    return max(_NOISE_SHARE * batch_size, noise_multiplier)
