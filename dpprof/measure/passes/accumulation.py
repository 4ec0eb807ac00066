"""Tells which sums of gradients autograd makes in place as long as no dispatch mode watches.

Where several gradients reach a tensor, autograd adds the next one to the sum so far. It does so in place if
nobody else holds the sum, unless a dispatch mode is active (torch/csrc/autograd/input_buffer.cpp): under a
ledger, each sum is a new tensor, which a training does not have.
"""

import sys
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
    last = references_of_last()
    if last is None:
        return False
    if not isinstance(args[0], Tensor) or args[0].layout is not torch.strided:
        return False
    if args[0].untyped_storage().nbytes() != args[0].numel() * args[0].element_size():
        return False
    return _references(args[0]) == last  # a name for it here would be one more reference


def _references(tensor: Any) -> tuple[int, int, int]:
    """Count the references of C++ to a tensor and to its storage, and those of Python."""
    uses = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return tensor._use_count(), uses, sys.getrefcount(tensor)


@cache
def references_of_last() -> tuple[int, int, int] | None:
    """Return how many references a sum and its storage have if autograd alone holds it.

    Found once, by a small backward, as this differs between versions of torch. None before torch 2.10.
    """
    if not hasattr(Tensor, "_use_count"):
        return None
    with torch.enable_grad():
        x = torch.ones(2, requires_grad=True)
        total = (x.sin() + x.cos()).sum()
    found: list[tuple[int, int, int]] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is _ADD:
                found.append(_references(args[0]))
            return func(*args, **(kwargs or {}))

    with Watch():
        total.backward()
    return found[0]
