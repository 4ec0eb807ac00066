"""Trains on fake tensors: shapes and types without data, so that any model can be run on any machine.

Three things in Opacus cannot run so as they stand; each gets a stand-in of the same memory, or of more:

- The ghost norm of an embedding calls `torch.unique`, whose result depends on data. The stand-in gives as
  many rows as there are tokens: an upper bound, reached when no token occurs twice in a sample.
- The optimizer of ghost and fast gradient clipping copies gradients by `copy.deepcopy`, which corrupts
  memory on fake tensors. The stand-in is `clone`.
- A module without a grad sampler of its own is copied and moved to the meta device, where torch cannot move
  fake parameters. The stand-in copies it onto the meta device.
"""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from opacus.grad_sample import functorch
from opacus.optimizers import optimizer_fast_gradient_clipping
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dpprof.errors import EstimateError
from dpprof.measure.trainers.announce import replaced

_FP32_ON_CUDA = {
    F.layer_norm,
    F.group_norm,
    F.softmax,
    F.log_softmax,
    F.cross_entropy,
    F.nll_loss,
    F.mse_loss,
}
_CANNOT = (
    "{operator} {why}, so this model cannot be estimated: measure it with `dpprof profile`, "
    "or estimate a workload that does without this operator"
)


@contextmanager
def fake_tensors(*, as_on_cuda: bool = False) -> Iterator[None]:
    """Every tensor made inside is a fake one. Opacus's stand-ins are in place meanwhile.

    `as_on_cuda` runs what autocast treats differently on the CPU as it is on CUDA.

    Raises EstimateError, which names the operator, where a result depends on data and has no stand-in.
    """
    by_clone = SimpleNamespace(deepcopy=torch.clone)
    with ExitStack() as stack:
        # What a workload makes by other means than torch's, such as numpy's, becomes fake when used.
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(_UpperBounds())
        stack.enter_context(replaced(optimizer_fast_gradient_clipping, "copy", by_clone))
        stack.enter_context(replaced(functorch, "copy", SimpleNamespace(deepcopy=_copy_on_meta)))
        if as_on_cuda:
            stack.enter_context(_CudaAutocast())
        try:
            yield
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise EstimateError(
                _CANNOT.format(operator=error.func, why="has a result that depends on data")
            ) from error
        except UnsupportedOperatorException as error:
            raise EstimateError(
                _CANNOT.format(operator=error.func, why="has no form without data")
            ) from error


def _copy_on_meta(module: nn.Module) -> nn.Module:
    """A deep copy whose parameters have no data and are not fake: nothing that a ledger would see."""
    with unset_fake_temporarily():
        on_meta = {
            id(p): nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device="meta"), p.requires_grad)
            for p in module.parameters()
        }
        return copy.deepcopy(module, on_meta)


class _CudaAutocast(TorchFunctionMode):
    """Autocast's list for CUDA on CPU tensors: these run in fp32 there, and not on the CPU
    (torch's documentation of autocast, operators that autocast to float32).
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _FP32_ON_CUDA and torch.is_autocast_enabled("cpu"):
            args = tuple(_in_fp32(argument) for argument in args)
        return func(*args, **(kwargs or {}))


def _in_fp32(argument: Any) -> Any:
    is_short = isinstance(argument, Tensor) and argument.dtype in (torch.bfloat16, torch.float16)
    return argument.float() if is_short else argument


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
