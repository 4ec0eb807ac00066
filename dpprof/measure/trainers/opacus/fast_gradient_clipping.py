"""DP-SGD that keeps only norms of per-sample gradients and runs backward a second time."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizerFastGradientClipping
from torch import Tensor, nn

from dpprof.measure.trainers.base import Held
from dpprof.measure.trainers.opacus.labels import label_gram_matrices
from dpprof.measure.trainers.opacus.trainer import OpacusTrainer


class DPFastGradientClippingTrainer(OpacusTrainer):
    """Fast Gradient Clipping (Lee and Kifer 2020): a first backward computes each layer's per-sample
    gradients, keeps their norms and drops them; a second backward of the losses weighted by the clip
    factors gives the sum of clipped gradients.

    Does in phases what the backward of Opacus's `DPLossFastGradientClipping` does in one call.
    """

    optimizer_wrapper = DPOptimizerFastGradientClipping
    forward_model: GradSampleModuleFastGradientClipping

    def wrap_model(self) -> nn.Module:
        """With hooks that compute norms of per-sample gradients."""
        wrapped: nn.Module = GradSampleModuleFastGradientClipping(
            self.model, max_grad_norm=self.max_grad_norm, use_ghost_clipping=self.use_ghost_clipping
        )
        return wrapped

    def held_tensors(self) -> Held:
        """What every trainer of Opacus holds, and the norms over all parameters."""
        held = super().held_tensors()
        total = self.forward_model._per_sample_gradient_norms
        if total is not None:
            held.setdefault("gradient_norms", []).append(("all parameters", total))
        return held

    @contextmanager
    def label_transient_tensors(self) -> Iterator[None]:
        """Per-sample gradients and Gram matrices."""
        with super().label_transient_tensors(), label_gram_matrices(self.observer, self.forward_model):
            yield

    def _reduced(self, losses: Tensor) -> Tensor:
        """The losses themselves: `DPTensorFastGradientClipping` keeps one per sample."""
        return losses

    def _accumulate_clipped(self, loss: Tensor) -> None:
        self._backward(loss)
        with self.phase("clip"):
            self.optimizer.accumulate()

    def _backward(self, losses: Tensor) -> None:
        """`DPTensorFastGradientClipping.backward`, line by line: what it holds, it holds until its end."""
        with self.phase("backward_norms"):
            reduced_loss = torch.mean(losses, dim=0)
            reduced_loss.backward(retain_graph=True)
        with self.phase("clip"):
            self.optimizer.zero_grad()  # keeps the gradients of the first backward, and zeroes them
            clip_factors = self.forward_model.get_clipping_coef()
            self.observer.label("clip_factors", [("", clip_factors)])
            weighted_losses = clip_factors * losses
            weighted_loss = torch.sum(weighted_losses)
        with self.phase("backward_weighted"):
            self.forward_model.disable_hooks()
            weighted_loss.backward()
            self.forward_model.enable_hooks()
