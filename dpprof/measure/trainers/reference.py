"""The clipped gradient by its definition, one sample at a time: what every trainer is held against."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.nested import call

_CLIP_FACTORS = partial(TrainerBase.clip_factors, options=None)


def naive_per_sample_gradients(
    model: nn.Module, loss: Callable[[Any, Any], Tensor], batch: Any, batch_size: int
) -> list[list[Tensor]]:
    """Each sample's gradient from a backward of its own: slow, and right by inspection.

    Returns, for every sample, one tensor per trainable parameter. Leaves no gradients on the model.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = []
    for i in range(batch_size):
        inputs, targets = single_sample(batch, i)
        loss(call(model, inputs), targets).sum().backward()
        gradients.append([p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters])
        for parameter in parameters:
            parameter.grad = None
    return gradients


def single_sample(batch: Any, index: int) -> Any:
    """A batch of the one sample at the index."""
    return tree_map(lambda t: t[index : index + 1] if isinstance(t, Tensor) else t, batch)


def global_norm(gradient: list[Tensor]) -> Tensor:
    """L2 norm over all parameters together, a scalar in float64.

    Summed in float64 whatever the gradient's type: a sum of millions of squares in float32 is off in its
    fourth digit, more than the trainers that are held against it.
    """
    norm: Tensor = torch.linalg.vector_norm(norms_of(gradient))
    return norm


def norms_of(gradient: list[Tensor]) -> Tensor:
    """L2 norm of each parameter's gradient, shape (P,), in float64."""
    return torch.stack([torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradient])


def clipped_mean(
    per_sample: list[list[Tensor]],
    max_grad_norm: float | None,
    clip_factors: Callable[[Tensor, float], Tensor] = _CLIP_FACTORS,
) -> list[Tensor]:
    """Mean over samples of the gradients, each clipped to `max_grad_norm` in L2 (None: unclipped).

    `clip_factors` is the trainer's (`TrainerBase.clip_factors`), with its settings.
    """
    total = [torch.zeros_like(g) for g in per_sample[0]]
    for gradient in per_sample:
        factors = torch.ones(len(gradient))
        if max_grad_norm is not None:
            factors = clip_factors(norms_of(gradient), max_grad_norm)
        for sum_so_far, factor, g in zip(total, factors, gradient, strict=True):
            sum_so_far += factor * g
    return [t / len(per_sample) for t in total]


def relative_error(gradients: list[Tensor], reference: list[Tensor]) -> float:
    """L2 distance of two gradients over the norm of the second, over all parameters together."""
    difference = global_norm([g - r for g, r in zip(gradients, reference, strict=True)])
    return float(difference / global_norm(reference))
