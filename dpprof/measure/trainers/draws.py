"""Random numbers in a model's forward: finds dropout, and repeats earlier draws."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map_only


def dropouts(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Yield dropout modules with the attribute that holds the probability; not dropout by function call."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            name = "p"
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            name = "dropout"
        else:
            continue
        if getattr(module, name) > 0:
            yield module, name


def state_of(device: torch.device) -> list[bytes]:
    """Return the state of the generators that a model may draw from, outside of torch's memory."""
    with unset_fake_temporarily():
        states = [torch.get_rng_state()]
        if device.type == "cuda" and torch.cuda.is_available():
            states.append(torch.cuda.get_rng_state(device))
        return [state.numpy().tobytes() for state in states]


def restore(device: torch.device, states: list[bytes]) -> None:
    """Restore the generators' state."""
    with unset_fake_temporarily():
        tensors = [torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in states]
        torch.set_rng_state(tensors[0])
        if len(tensors) > 1:
            torch.cuda.set_rng_state(tensors[1], device)


@contextmanager
def drawn_again(device: torch.device, states: list[bytes]) -> Iterator[None]:
    """Repeat earlier draws inside; afterwards the generators continue as before."""
    now = state_of(device)
    restore(device, states)
    try:
        yield
    finally:
        restore(device, now)


@contextmanager
def attention_alike() -> Iterator[None]:
    """Make attention draw alike under any `torch.func` transform: by its math kernel, cast as by autocast."""
    original = F.scaled_dot_product_attention

    def attention(query: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        kind = query.device.type
        if not torch.is_autocast_enabled(kind) or query.dtype == torch.float64:
            return original(query, *args, **kwargs)
        dtype = torch.get_autocast_dtype(kind)
        cast = lambda t: t.to(dtype) if t.is_floating_point() else t  # noqa: E731
        given, named = tree_map_only(Tensor, cast, ((query, *args), kwargs))
        with torch.autocast(kind, enabled=False):
            return original(*given, **named)

    with sdpa_kernel(SDPBackend.MATH), patch.object(F, "scaled_dot_product_attention", attention):
        yield
