"""DP-SGD that keeps only norms of per-sample gradients and runs backward a second time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import torch
from opacus.grad_sample import (
    GradSampleModuleFastGradientClipping,
    GradSampleModuleFastGradientClippingFSDP,
)
from opacus.optimizers import (
    DistributedDPOptimizerFastGradientClipping,
    DPOptimizer,
    DPOptimizerFastGradientClipping,
    FSDPOptimizerFastGradientClipping,
)
from torch import Tensor, nn

from dpprof.measure.trainers.base import Held
from dpprof.measure.trainers.opacus.labels import label_gram_matrices
from dpprof.measure.trainers.opacus.trainer import OpacusTrainer
from dpprof.vocabulary.parallel import DDP, FSDP2, NONE


class DPFastGradientClippingTrainer(OpacusTrainer):
    """Fast Gradient Clipping (Lee and Kifer 2020): a first backward computes each layer's per-sample
    gradients, keeps their norms and drops them; a second backward of the losses weighted by the clip
    factors gives the sum of clipped gradients.

    Does in phases what the backward of Opacus's `DPLossFastGradientClipping` does in one call.
    """

    optimizer_wrappers: ClassVar[Mapping[str, type[DPOptimizer]]] = {
        NONE: DPOptimizerFastGradientClipping,
        DDP: DistributedDPOptimizerFastGradientClipping,
        FSDP2: FSDPOptimizerFastGradientClipping,
    }
    forward_model: GradSampleModuleFastGradientClipping

    def wrap_model(self) -> nn.Module:
        """With hooks that compute norms of per-sample gradients."""
        kind = GradSampleModuleFastGradientClipping
        if self.parallel.way == FSDP2:
            kind = GradSampleModuleFastGradientClippingFSDP
        wrapped = kind(
            self.model_of_rank(),
            max_grad_norm=self.max_grad_norm,
            use_ghost_clipping=self.use_ghost_clipping,
        )
        wrapped.use_ghost_clipping = self.use_ghost_clipping  # that of FSDP ignores the argument
        of_samples: nn.Module = wrapped
        return of_samples

    def held_tensors(self) -> Held:
        """What every trainer of Opacus holds, and the norms over all parameters."""
        held = super().held_tensors()
        total = self.forward_model._per_sample_gradient_norms
        if total is not None:
            held.setdefault("gradient_norms", []).append(("all parameters", total))
        return held if self.parallel.way != FSDP2 else held | self._held_with_shards(held)

    def _held_with_shards(self, held: Held) -> Held:
        """What Opacus keeps elsewhere where parameters are shards."""
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
        return {category: tensors for category, tensors in found.items() if tensors}

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
