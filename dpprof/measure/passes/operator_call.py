"""One call of an operator, as far as its time depends on it: its name, type, shapes, bytes and FLOPs.

Tables of times are read by a call's kind, its type and its sizes (`sizes_of`). TF32 is a type of numbers of
its own, in which a GPU multiplies or convolves float32 if torch lets it.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dpprof.config.device_times import TYPES
from dpprof.measure.passes.traffic import tensors_in
from dpprof.vocabulary.operator_kinds import ATTENTION, BY_ROWS, CONVOLUTION, ENDS, PRODUCT, kind_of
from dpprof.vocabulary.precision import FP32, TF32


class OperatorCall(NamedTuple):
    """One call of an operator, as far as its time depends on it.

    `dtype` is that of its first floating tensor, or `tf32` (`as_computed`). `shapes` are those of its tensor
    arguments, without those in lists. `is_dense` is False if the elements of one do not lie in order, as
    after a transposition.
    """

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    is_dense: bool
    num_bytes: int
    flops: int


def call_of(name: str, args: tuple[Any, ...], num_bytes: int, flops: int) -> OperatorCall:
    """Describe an operator's call, given the bytes that it moves and its FLOPs."""
    if name == "aten::convolution_backward":  # its last argument: whether to make each gradient
        name += ENDS.get(tuple(args[-1][:2]), "")
    given = [value for value in args if isinstance(value, Tensor)]
    floating = (each.dtype for each in tensors_in(args) if each.is_floating_point())
    return OperatorCall(
        name=name,
        dtype=str(next(floating, "")).removeprefix("torch."),
        shapes=tuple(tuple(map(int, each.shape)) for each in given),
        is_dense=all(each.is_contiguous() for each in given if not each.is_sparse),
        num_bytes=num_bytes,
        flops=flops,
    )


def as_computed(call: OperatorCall) -> OperatorCall:
    """Return a call on a GPU with the type that it computes in: `tf32` where torch now lets float32 use it.

    That goes for products and convolutions. Fused attention in float32 asks for no permission: its kernel
    always makes a product of three in TF32, which is as exact as float32.
    """
    if call.dtype != TYPES[FP32]:
        return call
    kind = kind_of(call.name, call.is_dense)
    is_convolution = kind.startswith(CONVOLUTION)
    if (is_convolution or kind == PRODUCT) and _allows_tf32(is_convolution=is_convolution):
        return call._replace(dtype=TYPES[TF32])
    return call


def _allows_tf32(*, is_convolution: bool) -> bool:
    try:
        if is_convolution:
            return torch.backends.cudnn.allow_tf32
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # it was set by torch's newer names, which these do not know
        if is_convolution:
            return bool(torch.backends.cudnn.conv.fp32_precision == TF32)  # type: ignore[attr-defined]
        return torch.backends.cuda.matmul.fp32_precision == TF32


def sizes_of(call: OperatorCall, kind: str) -> list[float]:
    """Return the sizes by which a kind is looked up."""
    if kind == PRODUCT:
        return _product(call)
    largest = max(call.shapes, key=math.prod, default=())
    if kind.startswith(CONVOLUTION):
        return _convolution(call)
    if kind.startswith(ATTENTION):
        *batch, positions, width = largest
        return [math.prod(batch), positions, width]
    if kind in BY_ROWS:
        columns = largest[-1] if largest else 1
        return [math.prod(largest) / max(1, columns), columns]
    return [call.num_bytes]


def _product(call: OperatorCall) -> list[float]:
    kind, matrices = kind_of(call.name), [shape for shape in call.shapes if len(shape) > 1]
    if kind == PRODUCT:
        (*batch, rows, inner), (*_, columns) = matrices[-2:]
        return [math.prod(batch), rows, columns, inner]
    if kind.startswith(CONVOLUTION):
        area, outputs, channels, inputs = _convolution(call)
        return [1, outputs, channels, area * inputs]
    *batch, positions, width = max(call.shapes, key=math.prod)
    return [math.prod(batch), positions, positions, width]


def _convolution(call: OperatorCall) -> list[float]:
    """Return the filter's area, the output's positions in all samples, its channels, and the input's."""
    is_backward = kind_of(call.name) != CONVOLUTION
    first, *others = call.shapes
    outputs, inner, *filter_sizes = others[1] if is_backward else others[0]
    area = math.prod(filter_sizes)
    products = math.prod(first) * inner * area if is_backward else call.flops // 2
    return [area, products // (outputs * inner * area), outputs, inner]


def each_gradient(call: OperatorCall) -> Iterator[OperatorCall]:
    """Yield the calls that make the gradient of a convolution's inputs alone, and that of its weights."""
    of_output, inputs, weights = (math.prod(shape) for shape in call.shapes[:3])
    given = of_output + inputs + weights
    share = call.num_bytes / (given + inputs + weights)
    for end, made in zip(ENDS.values(), (inputs, weights), strict=True):
        num_bytes = round(share * (given + made))
        yield call._replace(name=call.name + end, num_bytes=num_bytes, flops=call.flops // 2)
