"""Trains on fake tensors: shapes and types without data, so that any model can be run on any machine.

`torch.unique` along a dimension (in an embedding's ghost norm) returns as many rows as there are, an upper
bound. A single random number between 0 and 1 is 1: where it decides whether a layer is skipped, the layer
runs. `nn.init.trunc_normal_` draws once. Trainers add stand-ins (`TrainerBase.on_fake_tensors`).
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.overrides import TorchFunctionMode

from dpprof.errors import EstimateError
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.per_sample import uses

_aten = torch.ops.aten
_OPERATORS: dict[Any, Any] = fake_impls.op_implementations_dict
# Operators that autocast runs in fp32 on CUDA (torch's docs), of which the CPU's leaves most as they are.
_NAMES_IN_FP32 = """
    __pow__ __rpow__ __rdiv__ __rtruediv__ acos asin cosh cdist cosine_similarity cumprod cumsum dist erfinv
    exp expm1 group_norm layer_norm log log10 log1p log2 log_softmax pdist pow prod reciprocal renorm rsqrt
    sinh softmax softmin softplus tan binary_cross_entropy_with_logits cosine_embedding_loss
    hinge_embedding_loss kl_div l1_loss margin_ranking_loss mse_loss multilabel_margin_loss multi_margin_loss
    nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss
"""
_FP32_ON_CUDA = {
    getattr(owner, name)
    for owner in (torch, Tensor, F)
    for name in _NAMES_IN_FP32.split()
    if hasattr(owner, name)
}
_SUMS = {torch.sum, Tensor.sum}
_DROPOUT, _ATTENTION = F.dropout, F.scaled_dot_product_attention
_NEED_DATA = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)
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
    with ExitStack() as stack:
        # Data that a workload makes without torch, such as by numpy, becomes fake when used.
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(_upper_bounds())
        stack.enter_context(patch.object(nn.init, "_no_grad_trunc_normal_", _normal))
        stack.enter_context(trainer.on_fake_tensors())
        if as_on_cuda:
            stack.enter_context(patch.object(uses, "converts_in_kernels", lambda t: True))
            stack.enter_context(patch.object(F, "dropout", _fused_dropout))
            stack.enter_context(patch.object(F, "scaled_dot_product_attention", _fused_attention))
        if as_autocast_on_cuda:
            stack.enter_context(_CudaAutocast())
        try:
            yield
        except _NEED_DATA as error:
            is_known = not isinstance(error, UnsupportedOperatorException)
            why = "has a result that depends on data" if is_known else "has no form without data"
            raise EstimateError(_CANNOT.format(operator=error.func, why=why)) from error


class _CudaAutocast(TorchFunctionMode):
    """Treats CPU tensors like CUDA's in autocast's list of fp32 functions (torch's docs)."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.cross_entropy and torch.is_autocast_enabled("cpu"):
            func = _cross_entropy
        if func in _FP32_ON_CUDA and torch.is_autocast_enabled("cpu"):
            args = tuple(_in_fp32(argument) for argument in args)
        elif func in _SUMS and torch.is_autocast_enabled("cpu") and "out" not in (kwargs or {}):
            summed = args[0] if args else (kwargs or {})["input"]
            if summed.is_floating_point():
                kwargs = {"dtype": torch.float32, **(kwargs or {})}  # read as it is, and summed in fp32
        return func(*args, **(kwargs or {}))


def _cross_entropy(input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Compute the logarithm of the softmax in the input's type, and the rest in fp32, as CUDA's autocast."""
    if target.is_floating_point() or kwargs.get("label_smoothing"):
        return F.cross_entropy(_in_fp32(input), target, *args, **kwargs)
    kwargs.pop("label_smoothing", None)
    with torch.autocast("cpu", enabled=False):
        logarithms = F.log_softmax(input, min(1, input.dim() - 1))
        return F.nll_loss(_in_fp32(logarithms), target, *args, **kwargs)


def _fused_dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Drop as CUDA's kernel: it keeps a byte for each number, where the CPU keeps a factor."""
    if not training or inplace or not 0 < p < 1:
        return _DROPOUT(input, p, training, inplace)
    dropped: Tensor = torch.native_dropout(input, p, True)[0]
    return dropped


def _fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """Attend without dropout: CUDA's fused kernels drop without a matrix, and the CPU has none."""
    return _ATTENTION(query, key, value, attn_mask, 0.0, *args, **kwargs)


def _in_fp32(argument: Any) -> Any:
    is_short = isinstance(argument, Tensor) and argument.dtype in (torch.bfloat16, torch.float16)
    return argument.float() if is_short else argument


@contextmanager
def _upper_bounds() -> Iterator[None]:
    """Put upper bounds into fake tensors' table; a dispatch mode would cost a fifth of an estimate's time."""
    stand_ins = {_aten.unique_dim.default: _all_distinct, _aten.rand.default: _ones_if_one}
    before = {operator: _OPERATORS[operator] for operator in stand_ins if operator in _OPERATORS}
    _OPERATORS.update(stand_ins)
    try:
        yield
    finally:
        for operator in stand_ins:
            del _OPERATORS[operator]
        _OPERATORS.update(before)


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
