"""Lets the CPU's fake tensors take the memory that CUDA's kernels do, where CUDA chooses others.

Autocast has more functions in fp32; dropout, attention and RMS norms run in fused kernels, which keep less
for backward.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from dpprof.measure.trainers.per_sample import uses

_aten = torch.ops.aten
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
# Of torch 2.9 and later; before it, CUDA takes RMS norms apart too.
_FUSED_NORM = getattr(_aten, "_fused_rms_norm", None)
_SUMS = {torch.sum, Tensor.sum}
_DROPOUT, _ATTENTION, _RMS_NORM = F.dropout, F.scaled_dot_product_attention, F.rms_norm
_GROUP_NORM = torch.group_norm


@contextmanager
def kernels_of_cuda() -> Iterator[None]:
    """Run functions as CUDA does where fake tensors of the CPU stand for a GPU's."""
    operators = {} if _FUSED_NORM is None else {_FUSED_NORM.default: _norm_results}
    with (
        patch.object(uses, "converts_in_kernels", lambda t: True),
        patch.dict(fake_impls.op_implementations_dict, operators),
        patch.multiple(F, dropout=_dropout, scaled_dot_product_attention=_attention, rms_norm=_rms_norm),
        patch.object(torch, "group_norm", _group_norm),
    ):
        yield


class CudaAutocast(TorchFunctionMode):
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


def _in_fp32(argument: Any) -> Any:
    is_short = isinstance(argument, Tensor) and argument.dtype in (torch.bfloat16, torch.float16)
    return argument.float() if is_short else argument


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Drop as CUDA's kernel: it keeps a byte for each number, where the CPU keeps a factor."""
    if not training or inplace or not 0 < p < 1:
        return _DROPOUT(input, p, training, inplace)
    return torch.native_dropout(input, p, True)[0]


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attend as CUDA does: by a fused kernel that drops without a matrix, or step by step where none fits.

    The steps are those of `_scaled_dot_product_attention_math`, which changes fake tensors less in place.
    """
    if torch.is_autocast_enabled("cpu"):
        query, key, value = (x.to(torch.get_autocast_dtype("cpu")) for x in (query, key, value))
    if _has_fused_attention(query, key, value, attn_mask):
        # The CPU has no fused kernel that drops.
        return _ATTENTION(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
    factor = math.sqrt(scale or 1 / math.sqrt(query.shape[-1]))
    scaled = _in_fp32(query) * factor
    if is_causal:
        attn_mask = scaled.new_ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.where(attn_mask, scaled.new_zeros(()), scaled.new_full((), -torch.inf))
    with torch.autocast("cpu", enabled=False):
        key, value = _in_fp32(key), _in_fp32(value)
        if enable_gqa:
            key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
        weights = scaled @ (key * factor).transpose(-2, -1)
        if attn_mask is not None:
            weights.add_(attn_mask)
        weights = torch._safe_softmax(weights, -1)
        if dropout_p:
            weights = F.dropout(weights, dropout_p)
        return (weights @ value).to(query.dtype)


def _has_fused_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any) -> bool:
    """Tell whether a kernel takes these heads (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).

    Flash attention takes short types without a mask, also where several heads share keys; the
    memory-efficient kernel takes rows of multiples of 16 bytes.
    """
    if query.dim() != 4 or query.shape[-1] != key.shape[-1]:
        return False
    if query.element_size() == 2 and attn_mask is None and query.shape[-1] == value.shape[-1] <= 256:
        return True
    in_rows = all(tensor.shape[-1] * tensor.element_size() % 16 == 0 for tensor in (query, value))
    return query.shape[1] == key.shape[1] and in_rows


def _rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Normalize in one kernel, which keeps the input and a factor for each row."""
    if _FUSED_NORM is None or torch._C._functorch.maybe_current_level() is not None:
        return _RMS_NORM(input, normalized_shape, weight, eps)
    return _FusedNorm.apply(input, normalized_shape, weight, eps)


def _group_norm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Normalize contiguous images: only the CPU's kernel takes those that have their channels last."""
    return _GROUP_NORM(input.contiguous(), *args, **kwargs)


class _FusedNorm(torch.autograd.Function):
    """The operators of CUDA's RMS norm, which torch takes apart on the CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: Any, weight: Tensor | None, eps: float | None) -> Tensor:
        ctx.shape = shape
        with torch._C._AutoDispatchBelowAutograd():
            normal, factors = _aten._fused_rms_norm(x, shape, weight, eps)
        ctx.save_for_backward(x, weight, factors)
        return normal

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        x, weight, factors = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[2]]
        of_input, of_weight = _aten._fused_rms_norm_backward(gradient, x, ctx.shape, factors, weight, wanted)
        return of_input, None, of_weight, None


def _norm_results(
    mode: FakeTensorMode, func: Any, x: Tensor, shape: Any, weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    """`aten::_fused_rms_norm`: the result, and a factor for each row."""
    rows = (*x.shape[: x.dim() - len(shape)], *[1] * len(shape))
    with mode:
        return torch.empty_like(x), x.new_empty(rows, dtype=torch.float32)
