"""DP-SGD that keeps only norms of per-sample gradients and runs backward a second time."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping, GradSampleModuleFastGradientClippingFSDP
from opacus.optimizers import (
    DistributedDPOptimizerFastGradientClipping,
    DPOptimizer,
    DPOptimizerFastGradientClipping,
    FSDPOptimizerFastGradientClipping,
)
from torch import Tensor, nn

from dpprof.measure.trainers.base import Held
from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer
from dpprof.vocabulary.parallel import DDP, FSDP2, NONE


class DPFastGradientClippingTrainer(DPSGDTrainer):
    """Fast Gradient Clipping (Lee and Kifer 2020), in phases.

    A first backward computes per-sample gradients layer by layer and keeps their norms; a second one, of the
    losses times the clip factors, gives the clipped sum. Opacus does all in one call of backward.
    """

    optimizer_wrappers: ClassVar[Mapping[str, type[DPOptimizer]]] = {
        NONE: DPOptimizerFastGradientClipping,
        DDP: DistributedDPOptimizerFastGradientClipping,
        FSDP2: FSDPOptimizerFastGradientClipping,
    }
    forward_model: GradSampleModuleFastGradientClipping

    def wrap_model(self) -> nn.Module:
        """Add hooks that compute norms of per-sample gradients."""
        kind = GradSampleModuleFastGradientClipping
        if self.parallel.way == FSDP2:
            kind = GradSampleModuleFastGradientClippingFSDP
        wrapped = kind(
            self.model_of_rank(), max_grad_norm=self.max_grad_norm, use_ghost_clipping=self.use_ghost_clipping
        )
        wrapped.use_ghost_clipping = self.use_ghost_clipping  # that of FSDP ignores the argument
        return wrapped

    def held_tensors(self) -> Held:
        """Add the sums and norms that Opacus keeps elsewhere if parameters are shards."""
        held = super().held_tensors()
        if self.parallel.way != FSDP2:
            return held
        name_of = {parameter: name for name, parameter in self.model.named_parameters()}
        sums = [
            (name_of[parameter], state["summed_grad"])
            for parameter, state in self.optimizer.grad_state.items()
            if state["summed_grad"] is not None
        ]
        norms = [
            (name, norm)
            for name, module in self.model.named_modules()
            for norm in getattr(module, "norm_sample", ())
        ]
        found = {"summed_gradients": sums, "gradient_norms": [*norms, *held.get("gradient_norms", [])]}
        return held | {category: tensors for category, tensors in found.items() if tensors}

    def _reduced(self, losses: Tensor) -> Tensor:
        """Keep the losses: `DPTensorFastGradientClipping` holds one per sample."""
        return losses

    def _accumulate_clipped(self, loss: Tensor) -> None:
        self._backward(loss)
        with self.phase("clip"):
            self.optimizer.accumulate()

    def _backward(self, losses: Tensor) -> None:
        """Do as `DPTensorFastGradientClipping.backward`, line by line, to hold the same tensors as long."""
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


class DPGhostClippingTrainer(DPFastGradientClippingTrainer):
    """Ghost Clipping (Li et al. 2022, section 4): Fast Gradient Clipping with cheaper norms.

    A linear layer's norms come from Gram matrices of activations and output gradients, two (B, T, T) tensors.
    Opacus 1.6 fails on an embedding's ghost norm of an empty batch: under Poisson sampling it is replaced.
    """

    use_ghost_clipping = True

    def wrap_model(self) -> nn.Module:
        """Add hooks that compute norms, by Gram matrices where a layer has them."""
        wrapped = super().wrap_model()
        if self.poisson_sampling:
            wrapped.NORM_SAMPLERS = _NORM_SAMPLERS | {nn.Embedding: _norms_of_embedding}
        return wrapped


_NORM_SAMPLERS = GradSampleModuleFastGradientClipping.NORM_SAMPLERS


def _norms_of_embedding(layer: nn.Embedding, activations: list[Tensor], backprops: Tensor) -> Any:
    """Return Opacus's norms, or none for an empty batch."""
    if len(backprops) == 0:
        return {layer.weight: backprops.new_zeros(0)}
    return _NORM_SAMPLERS[nn.Embedding](layer, activations, backprops)
