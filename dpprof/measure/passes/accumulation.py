"""Tells which sums of gradients autograd makes in place as long as no dispatch mode watches.

Where several gradients reach a tensor, autograd adds the next one to the sum so far. It does so in place if
nobody else holds the sum, unless a dispatch mode is active (torch/csrc/autograd/input_buffer.cpp): under a
ledger, each sum is a new tensor, which a training does not have.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_ADD = torch.ops.aten.add.Tensor


def is_in_place(func: Any, args: tuple[Any, ...]) -> bool:
    """Tell whether this call in a dispatch mode is such a sum; its first argument becomes the result."""
    if func is not _ADD or torch._C._current_graph_task_id() == -1 or torch.is_grad_enabled():
        return False
    so_far = args[0]
    is_plain = isinstance(so_far, Tensor) and so_far.layout is torch.strided
    if not is_plain or so_far.untyped_storage().nbytes() != so_far.numel() * so_far.element_size():
        return False
    return _references(so_far) == references_of_last()


def _references(tensor: Any) -> tuple[int, int]:
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


@cache
def references_of_last() -> tuple[int, int] | None:
    """Return how many references a sum and its storage have if autograd alone holds it.

    Found once, by a small backward, as this differs between versions of torch. None before torch 2.10.
    """
    if not hasattr(Tensor, "_use_count"):
        return None
    with torch.enable_grad():
        x = torch.ones(2, requires_grad=True)
        total = (x.sin() + x.cos()).sum()
    found: list[tuple[int, int]] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is _ADD:
                found.append(_references(args[0]))
            return func(*args, **(kwargs or {}))

    with Watch():
        total.backward()
    return found[0]
