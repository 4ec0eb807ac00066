"""Runs single operators for real, on tensors of zeros, to see how much memory they use internally.

The shapes of inputs and results do not show it: oneDNN reorders the inputs of a convolution, its LSTM keeps
a workspace for backward, and other operators copy what is not contiguous. So an estimate for the CPU runs
each operator once for each set of shapes and reads the allocator's events. The answer holds for this
machine's processor, number of threads and libraries.
"""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_flatten, tree_map_only

from dpprof.measure.passes.events import read
from dpprof.measure.passes.traffic import footprint, tensors_in

# A trial really takes the memory, and the time.
_LARGEST_BYTES = 2**30
_MOST_FLOPS = 10**11


@dataclass(frozen=True)
class Layout:
    """The layout of a tensor, from which another one can be made. `num_elements` are those of its storage."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    num_elements: int

    @classmethod
    def of_argument(cls, tensor: Tensor) -> "Layout":
        """The layout of a strided tensor, without the rest of its storage."""
        shape, stride = tuple(tensor.shape), tuple(tensor.stride())
        last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        return cls(shape, stride, tensor.dtype, 0 if 0 in shape else last + 1)

    @classmethod
    def of_result(cls, tensor: Tensor) -> "Layout":
        """The layout of a strided tensor over the whole of its storage."""
        num_elements = tensor.untyped_storage().nbytes() // tensor.element_size()
        return cls(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, num_elements)

    def zeros(self) -> Tensor:
        """A tensor of this layout on the CPU; elements that share memory in the original share it here."""
        storage = torch.zeros(self.num_elements, dtype=self.dtype, device="cpu")
        return storage.as_strided(self.shape, self.stride)


@dataclass(frozen=True)
class Trial:
    """The memory of one call of an operator: the most bytes it had allocated at a time, results included, the
    bytes that remained, and the layouts of its results (None: no tensor).
    """

    peak: int
    left: int
    results: list[Layout | None]


class Trials:
    """Tries operators: once for all calls with the same layouts.

    In a thread of its own, where no dispatch mode, no transform of functorch and no autocast is active.
    """

    def __init__(self) -> None:
        self._known: dict[object, Trial | None] = {}
        self._thread = ThreadPoolExecutor(max_workers=1)

    def of(
        self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, num_flops: int
    ) -> Trial | None:
        """The trial of a call, given its fake result.

        None if it is too large to be tried, takes sparse tensors, or fails on zeros.
        """
        tensors = list(tensors_in((*args, *kwargs.values())))
        if any(tensor.layout is not torch.strided for tensor in tensors):
            return None
        leaves, spec = tree_flatten((args, kwargs))
        key = (operator, str(spec), *map(_form, leaves))
        if key not in self._known:
            num_bytes = sum(footprint(tensor) for tensor in (*tensors, *tensors_in((result,))))
            too_large = num_bytes > _LARGEST_BYTES or num_flops > _MOST_FLOPS
            forms = tree_map_only(Tensor, Layout.of_argument, (args, kwargs))
            self._known[key] = None if too_large else self._thread.submit(_tried, operator, *forms).result()
        return self._known[key]


def _form(leaf: Any) -> object:
    return Layout.of_argument(leaf) if isinstance(leaf, Tensor) else (type(leaf), repr(leaf))


def _tried(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trial | None:
    """The trial of a call whose tensors are given by their layouts; None if it fails."""
    real_args, real_kwargs = tree_map_only(Layout, Layout.zeros, (args, kwargs))
    try:
        return _recorded(lambda: operator(*real_args, **real_kwargs))
    except (RuntimeError, ValueError, IndexError):
        return None  # zeros do not suit every operator: a singular matrix, or no probabilities


def _recorded(call: Callable[[], Any]) -> Trial:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = call()
    events = read(profiler, "cpu").allocations
    levels = [0, *itertools.accumulate(event.num_bytes for event in events)]
    results = [Layout.of_result(x) if isinstance(x, Tensor) else None for x in tree_flatten(result)[0]]
    return Trial(max(levels), max(levels[-1], 0), results)
