"""Trains on fake tensors: shapes and types without data, so that any model can be run on any machine.

`torch.unique` along a dimension (in an embedding's ghost norm) returns as many rows as there are, an upper
bound. A single random number between 0 and 1 is 1: where it decides whether a layer is skipped, the layer
runs. `nn.init.trunc_normal_` draws once. The norms by which Adafactor chooses the size of its steps are 1.
Trainers add stand-ins (`TrainerBase.on_fake_tensors`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.optim import _adafactor

from dpprof.errors import EstimateError
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.cuda_kernels import CudaAutocast, kernels_of_cuda
from dpprof.measure.trainers.quick_fakes import QuickFakeTensorMode

_aten = torch.ops.aten
NEED_DATA = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)
_CANNOT = (
    "{operator} {why}, so this model cannot be estimated: measure it with `dpprof profile`, "
    "or estimate a workload that does without this operator"
)


@contextmanager
def fake_tensors(
    trainer: type[TrainerBase] = TrainerBase, *, as_on_cuda: bool = False, as_autocast_on_cuda: bool = False
) -> Iterator[None]:
    """Make every tensor inside a fake one, with the trainer's stand-ins in place.

    `as_on_cuda` lets the CPU's tensors stand for a GPU's, and `as_autocast_on_cuda` makes autocast act so, at
    some cost in time. Raises EstimateError, which names the operator, where a result depends on data and has
    no stand-in.
    """
    with (
        QuickFakeTensorMode(),
        # Upper bounds in fake tensors' table: a dispatch mode would cost a fifth of an estimate's time.
        patch.dict(fake_impls.op_implementations_dict, _STAND_INS),
        patch.object(nn.init, "_no_grad_trunc_normal_", _normal),
        patch.object(nn.Module, "_apply", _apply_to_fakes),
        patch.object(_adafactor, "_single_tensor_adafactor", _adafactor_of_any_norm),
        trainer.on_fake_tensors(),
        kernels_of_cuda() if as_on_cuda else nullcontext(),
        CudaAutocast() if as_autocast_on_cuda else nullcontext(),
    ):
        try:
            yield
        except NEED_DATA as error:
            is_known = not isinstance(error, UnsupportedOperatorException)
            why = "has a result that depends on data" if is_known else "has no form without data"
            raise EstimateError(_CANNOT.format(operator=error.func, why=why)) from error


def _apply_to_fakes(
    module: nn.Module, convert: Callable[[Tensor], Tensor], recurse: bool = True
) -> nn.Module:
    """Convert a module's tensors as `to` does: torch cannot swap fake ones, not even for themselves."""
    converted: dict[Tensor, Tensor] = {}
    for one in module.modules() if recurse else [module]:
        for named in (one._parameters, one._buffers):
            for name, tensor in list(named.items()):
                if tensor is None:
                    continue
                with torch.no_grad():
                    new = converted.get(tensor, convert(tensor))
                if new is tensor:
                    continue
                if isinstance(tensor, nn.Parameter):
                    new = nn.Parameter(new, tensor.requires_grad)
                converted[tensor] = new
                setattr(one, name, new)
        if isinstance(one, nn.RNNBase):
            one._init_flat_weights()  # it keeps its weights in a list, too
    return module


def _ones_if_one(mode: FakeTensorMode, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Random numbers; a single one has the value 1."""
    result: Any = fake_impls.constructors(mode, func, *args, **kwargs)
    if result.dim() == 0:
        with unset_fake_temporarily():
            result.constant = torch.ones((), dtype=result.dtype)
    return result


def _normal(tensor: Tensor, mean: float, std: float, *_: Any, **__: Any) -> Tensor:
    """Fill a new parameter, using as many bytes as a truncated distribution would."""
    with torch.no_grad():
        return tensor.normal_(mean, std)


_adafactor_of_each: Callable[..., None] = _adafactor._single_tensor_adafactor


def _adafactor_of_any_norm(*args: Any, **kwargs: Any) -> None:
    """Update by Adafactor with norms of 1, which change no size and no operator."""
    with patch.dict(fake_impls.op_implementations_dict, {_aten._local_scalar_dense.default: _one}):
        _adafactor_of_each(*args, **kwargs)


def _one(mode: FakeTensorMode, func: Any, tensor: Tensor) -> float:
    return 1.0


def _all_distinct(
    mode: FakeTensorMode,
    func: Any,
    tensor: Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """`aten::unique_dim` for input without duplicates."""
    length = tensor.shape[dim]
    with mode:
        inverse = tensor.new_empty(length if return_inverse else 0, dtype=torch.int64)
        counts = tensor.new_empty(length if return_counts else 0, dtype=torch.int64)
        return torch.empty_like(tensor), inverse, counts


_STAND_INS = {_aten.unique_dim.default: _all_distinct, _aten.rand.default: _ones_if_one}
