"""What each sample's gradient is multiplied by, so that no sample moves the sum by more than C."""

import math

import torch
from torch import Tensor

from dpprof.vocabulary.clipping import AUTOMATIC, LAYER_WISE

# What automatic clipping adds to a norm (Bu et al. 2023, "Automatic Clipping", section 4).
STABILITY = 0.01


def factor(norm: Tensor, max_grad_norm: float, clipping: str) -> Tensor:
    """1 / max(1, norm / C) (Abadi et al. 2016), or with automatic clipping C / (norm + 0.01) (AUTO-S)."""
    if clipping == AUTOMATIC:
        return max_grad_norm / (norm + STABILITY)
    return 1 / (norm / max_grad_norm).clamp(min=1.0)


def factors(norms: Tensor, max_grad_norm: float, clipping: str) -> Tensor:
    """From norms of parameters, shape (P, ...), their factors; they differ between parameters with
    layer-wise clipping alone: to C / sqrt(P) each, as Opacus's `per_layer` does.
    """
    if clipping == LAYER_WISE:
        return factor(norms, of_one(max_grad_norm, len(norms)), clipping)
    whole = torch.linalg.vector_norm(norms, dim=0)
    return factor(whole, max_grad_norm, clipping).expand_as(norms)


def of_one(max_grad_norm: float, num_parameters: int) -> float:
    """What layer-wise clipping clips each parameter's gradient to."""
    return max_grad_norm / math.sqrt(num_parameters)
