"""DP-SGD that computes the norms of per-sample gradients without the gradients."""

from typing import Any

from opacus.grad_sample import GradSampleModuleFastGradientClipping
from torch import Tensor, nn

from dpprof.measure.trainers.opacus.fast_gradient_clipping import DPFastGradientClippingTrainer


class DPGhostClippingTrainer(DPFastGradientClippingTrainer):
    """Ghost Clipping (Li et al. 2022, section 4): as Fast Gradient Clipping, but a linear layer's norms
    come from the Gram matrices of its activations and output gradients, two (B, T, T) tensors.

    Opacus 1.6 cannot take the ghost norm of an embedding over an empty batch; under Poisson sampling it is
    given one that can.
    """

    use_ghost_clipping = True

    def wrap_model(self) -> nn.Module:
        """With hooks that compute norms, by Gram matrices where a layer has them."""
        wrapped = super().wrap_model()
        if self.poisson_sampling:
            wrapped.NORM_SAMPLERS = _NORM_SAMPLERS | {nn.Embedding: _norms_of_embedding}
        return wrapped


_NORM_SAMPLERS = GradSampleModuleFastGradientClipping.NORM_SAMPLERS


def _norms_of_embedding(layer: nn.Embedding, activations: list[Tensor], backprops: Tensor) -> Any:
    """Opacus's norms, or none for no sample."""
    if len(backprops) == 0:
        return {layer.weight: backprops.new_zeros(0)}
    return _NORM_SAMPLERS[nn.Embedding](layer, activations, backprops)
