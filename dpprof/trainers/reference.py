"""The clipped gradient by its definition, one sample at a time: what every trainer is held against."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from dpprof.trainers.base import call


def naive_gradient(
    model: nn.Module,
    loss: Callable[[Any, Any], Tensor],
    batch: Any,
    batch_size: int,
    max_grad_norm: float | None,
) -> list[Tensor]:
    """Mean over samples of each sample's gradient, clipped to `max_grad_norm` in L2 (None: unclipped).

    One backward per sample with plain autograd: slow, and right by inspection. Returns one tensor per
    trainable parameter. The factor is Opacus's, min(1, C / (norm + 1e-6)).
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in parameters]
    for i in range(batch_size):
        inputs, targets = tree_map(lambda t: t[i : i + 1] if isinstance(t, Tensor) else t, batch)
        sample_loss = loss(call(model, inputs), targets).sum()
        gradients = torch.autograd.grad(sample_loss, parameters)
        factor = torch.ones((), dtype=gradients[0].dtype, device=gradients[0].device)
        if max_grad_norm is not None:
            norm = torch.stack([g.norm() for g in gradients]).norm()
            factor = (max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        for sum_so_far, gradient in zip(total, gradients, strict=True):
            sum_so_far += factor * gradient
    return [t / batch_size for t in total]


def relative_error(gradients: list[Tensor], reference: list[Tensor]) -> float:
    """L2 distance of two gradients over the norm of the second, over all parameters together."""
    difference = torch.stack([(g - r).norm() for g, r in zip(gradients, reference, strict=True)]).norm()
    return float(difference / torch.stack([r.norm() for r in reference]).norm())
