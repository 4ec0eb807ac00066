"""Trains on fake tensors: shapes and types without data, so that any model can be run on any machine.

Two things in Opacus cannot run so as they stand; each gets a stand-in of the same memory, or of more:

- The ghost norm of an embedding calls `torch.unique`, whose result depends on data. The stand-in gives as
  many rows as there are tokens: an upper bound, reached when no token occurs twice in a sample.
- The optimizer of ghost and fast gradient clipping copies gradients by `copy.deepcopy`, which corrupts
  memory on fake tensors. The stand-in is `clone`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from opacus.optimizers import optimizer_fast_gradient_clipping
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from dpprof.trainers.announce import replaced


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Every tensor made inside is a fake one. Opacus's stand-ins are in place meanwhile."""
    by_clone = SimpleNamespace(deepcopy=torch.clone)
    with FakeTensorMode(), _UpperBounds(), replaced(optimizer_fast_gradient_clipping, "copy", by_clone):
        yield


class _UpperBounds(TorchDispatchMode):
    """Gives operators whose results depend on data the largest result that they can have."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.unique_dim.default:
            return _all_distinct(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _all_distinct(
    tensor: Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """What `aten::unique_dim` gives when nothing occurs twice."""
    length = tensor.shape[dim]
    inverse = tensor.new_empty(length if return_inverse else 0, dtype=torch.int64)
    counts = tensor.new_empty(length if return_counts else 0, dtype=torch.int64)
    return torch.empty_like(tensor), inverse, counts
