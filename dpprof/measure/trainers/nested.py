"""Tensors of a batch or an output, however nested."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves, tree_map


def named_leaves(tree: Any) -> list[tuple[str, Tensor]]:
    """Return the tensors of a batch or an output with their paths, e.g. `[0][1]`, or numbers if unknown."""
    try:
        leaves, _ = tree_flatten_with_path(tree)
    except ValueError:
        return [(f"[{i}]", leaf) for i, leaf in enumerate(tree_leaves(tree)) if isinstance(leaf, Tensor)]
    return [(keystr(path), leaf) for path, leaf in leaves if isinstance(leaf, Tensor)]


def moved(batch: Any, device: torch.device) -> Any:
    """Move a batch's tensors to a device."""
    return tree_map(lambda t: t.to(device, non_blocking=True) if isinstance(t, Tensor) else t, batch)


def as_real(tensor: Tensor) -> Tensor:
    """View a tensor as real numbers, two per complex one, as clipping and noise count them."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def call(model: nn.Module, inputs: Any) -> Any:
    """Call a model with a batch's inputs: a dict by name, a tuple by position, else as one argument."""
    if isinstance(inputs, dict):
        return model(**inputs)
    if isinstance(inputs, tuple):
        return model(*inputs)
    return model(inputs)


def attributes(model: nn.Module, name: str) -> list[tuple[str, Tensor]]:
    """Return an attribute of each parameter: none, a tensor, or a list of them."""
    found = [(of, getattr(parameter, name, None)) for of, parameter in model.named_parameters()]
    listed = [(of, value if isinstance(value, list) else [value]) for of, value in found]
    return [(of, tensor) for of, values in listed for tensor in values if tensor is not None]
