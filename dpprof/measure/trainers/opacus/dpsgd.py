"""DP-SGD with flat per-sample clipping."""

import torch
from opacus.grad_sample import GradSampleModule
from torch import Tensor, nn

from dpprof.measure.trainers.opacus.trainer import OpacusTrainer


class DPSGDTrainer(OpacusTrainer):
    """Materialises every per-sample gradient, then clips it (Abadi et al. 2016; Opacus's `DPOptimizer`)."""

    def wrap_model(self) -> nn.Module:
        """Add hooks that compute per-sample gradients."""
        wrapped: nn.Module = GradSampleModule(self.model_of_rank())
        return wrapped

    def _is_one_per_sample(self, shape: torch.Size) -> bool:
        return shape[:1] == (self.num_samples,) and shape.numel() <= self.num_samples * len(self.parameters)

    def _reduced(self, losses: Tensor) -> Tensor:
        return losses.mean()

    def _accumulate_clipped(self, loss: Tensor) -> None:
        with self.phase("backward"):
            loss.backward()
        with self.phase("clip"), self.observer.label_new("clip_factors", self._is_one_per_sample):
            self._clip()

    def _clip(self) -> None:
        self.optimizer.clip_and_accumulate()
