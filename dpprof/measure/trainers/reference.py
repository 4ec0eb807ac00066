"""Clipped gradient by its definition, one sample at a time: the reference for every trainer."""

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.nested import as_real, call
from dpprof.measure.trainers.parallel import whole

_CLIP_FACTORS = partial(TrainerBase.clip_factors, options=None)


def naive_per_sample_gradients(
    model: nn.Module, loss: Callable[[Any, Any], Tensor], batch: Any, batch_size: int
) -> list[list[Tensor]]:
    """Compute each sample's gradient by its own backward: slow, and right by inspection.

    Returns, per sample, one tensor of real numbers per trainable parameter. Leaves no gradients on the model.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = []
    for i in range(batch_size):
        inputs, targets = single_sample(batch, i)
        loss(call(model, inputs), targets).sum().backward()
        gradients.append(gradients_of(parameters))
        for parameter in parameters:
            parameter.grad = None
    return gradients


def copied(model: nn.Module) -> nn.Module:
    """Return a deep copy; tensors computed by hooks are detached, since a graph cannot be copied."""
    tensors = [t for module in model.modules() for t in vars(module).values() if isinstance(t, Tensor)]
    return copy.deepcopy(model, {id(t): t.detach() for t in tensors if not t.is_leaf})


def gradients_of(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Return the real numbers in `p.grad`, gathered from shards: zeros where there is no gradient."""
    return [as_real(whole(torch.zeros_like(p) if p.grad is None else p.grad)) for p in parameters]


def single_sample(batch: Any, index: int) -> Any:
    """Return a batch of the one sample at the index."""
    return tree_map(lambda t: t[index : index + 1] if isinstance(t, Tensor) else t, batch)


def global_norm(gradient: list[Tensor]) -> Tensor:
    """L2 norm over all parameters together, a scalar in float64.

    A float32 sum of millions of squares is off in its fourth digit, more than the trainers tested against it.
    """
    return torch.linalg.vector_norm(norms_of(gradient))


def norms_of(gradient: list[Tensor]) -> Tensor:
    """L2 norm of each parameter's gradient, shape (P,), in float64."""
    return torch.stack([torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradient])


def clipped_mean(
    per_sample: list[list[Tensor]],
    max_grad_norm: float | None,
    clip_factors: Callable[[Tensor, float], Tensor] = _CLIP_FACTORS,
) -> list[Tensor]:
    """Mean of gradients clipped to L2 norm `max_grad_norm` (None: unclipped), with a trainer's factors."""
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
