"""Memory that CUDA's kernels for sums, norms, attention and convolutions take while they run.

A reduction over many rows splits them over blocks of threads, each of which leaves partial results in a
buffer, often larger than the input. Its size follows from the shapes, the number of multiprocessors and the
threads that each can hold (aten/src/ATen/native/cuda/Reduce.cuh of torch 2.13: `setReduceConfig`,
`global_memory_size`, `semaphore_size`). The backward kernels of attention sum the gradient of the queries in
fp32 and, where blocks of keys share it, in a buffer of its own (aten/src/ATen/native/transformers/cuda).
"""

import math
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from dpprof.config.devices import Multiprocessors

_aten = torch.ops.aten
_WARP, _MOST_THREADS = 32, 512
_VECTOR = 4
_LEAST_VALUES, _MOST_VALUES = 16, 256  # that a thread adds up
_COUNTER_BYTES = 4
_LEAST_CHANNELS = 16
# Place of the dimensions among the arguments.
_REDUCTIONS = {_aten.sum: 1, _aten.mean: 1, _aten.amax: 1, _aten.amin: 1, _aten.linalg_vector_norm: 2}


class _Dimension(NamedTuple):
    """A dimension of a reduction: its size, the input's stride and the output's (0: reduced), in elements."""

    size: int
    stride: int
    stride_out: int


@cache
def may_take_scratch(func: Any) -> bool:
    """Tell if an operator (`OpOverload`) is a reduction or a softmax."""
    packet = func._overloadpacket
    return packet in _REDUCTIONS or packet in (_aten._safe_softmax, _aten._softmax_backward_data)


def scratch_bytes(func: Any, args: tuple[Any, ...], processors: Multiprocessors) -> list[int]:
    """Return the bytes of each buffer that a reduction or a softmax takes; empty for others."""
    packet = func._overloadpacket
    if packet is _aten._safe_softmax:
        rows = args[0].numel() // max(1, args[0].shape[args[1]])
        return [args[0].numel(), rows, args[0].element_size()]  # which numbers, and which rows, are hidden
    if packet is _aten._softmax_backward_data:
        return [args[0].nbytes]  # the gradient times the softmax
    if packet not in _REDUCTIONS or not isinstance(tensor := args[0], Tensor):
        return []
    if tensor.numel() == 0 or not tensor.is_floating_point():
        return []
    dims = next(iter(args[_REDUCTIONS[packet] :]), None)
    found = range(tensor.dim()) if not dims and not isinstance(dims, int) else dims
    reduced = {dim % max(1, tensor.dim()) for dim in ([found] if isinstance(found, int) else found)}
    return _buffers(tensor, reduced, processors)


def attention_scratch(query: Tensor, *, is_hopper: bool) -> list[list[int]]:
    """Return the bytes that attention's backward takes beside the gradients: buffers held together, in order.

    In short types, cuDNN runs on Hopper, and flash attention elsewhere, which pads rows to 128. In fp32 the
    memory-efficient kernel runs. Shape: (B, heads, T, D).
    """
    batch, heads, length, size = query.shape
    num, rows = batch * heads, 4 * batch * heads * length
    if query.element_size() == 2 and is_hopper:
        return [[rows * (size + 1) + 256]]
    if query.element_size() == 2:
        padded = 4 * num * _padded(length, 128)
        return [[padded, padded * _padded(size, 32)]]
    block = 64 if size <= 64 else 128
    tiles = num * -(-length // block) * -(-size // 64)
    return [[query.nbytes, rows, rows], [rows, tiles * (4 * block * 64 + 16)]]


def convolution_scratch(func: Any, args: tuple[Any, ...], result: Any, *, is_hopper: bool) -> list[list[int]]:
    """Return the bytes that a convolution by cuDNN takes beside its results: buffers held together, in order.

    Where the image or the weight has its channels last, torch copies into that format what is not in it.
    cuDNN's planner wants channels last for matrix units, and asks for workspaces in which it converts what
    it reads and what it writes: without groups and from 16 channels on in most cases; otherwise for nothing,
    or for more. What has its channels last already it copies before Hopper, in fp32, as far as it reads it.
    """
    backward = func._overloadpacket is _aten.convolution_backward
    gradient, x, weight = args[:3] if backward else (result, *args[:2])
    groups = args[9] if backward else args[8]
    if groups != 1:
        return []
    parts = [(gradient, weight, result[0]), (gradient, x, result[1])] if backward else [(x, weight, result)]
    wanted = [part for part in parts if part[2] is not None]
    if not any(_has_channels_last(tensor) for tensor in (x, weight)):
        has_copies = min(weight.shape[:2]) >= _LEAST_CHANNELS
        return [[sum(tensor.nbytes for tensor in part)] for part in wanted if has_copies]
    read = [gradient] * backward + [x] * (not backward or result[1] is not None)
    converted = [image.nbytes for image in read if not _has_channels_last(image)]
    if x.dtype != torch.float32 or is_hopper:
        return [converted for _ in wanted]
    return [[*converted, sum(tensor.nbytes for tensor in part[:2])] for part in wanted]


def _has_channels_last(tensor: Tensor) -> bool:
    """Tell if the strides of an image or a weight are those of channels last, as torch decides it."""
    return tensor.dim() == 4 and suggest_memory_format(tensor) is torch.channels_last


def _padded(length: int, unit: int) -> int:
    return -(-length // unit) * unit


def _buffers(tensor: Tensor, reduced: set[int], processors: Multiprocessors) -> list[int]:
    inner, outer = _dimensions(tensor, reduced)
    num_outputs = math.prod(dim.size for dim in outer)
    num_inputs = math.prod(dim.size for dim in inner)
    along_input = not outer or (bool(inner) and inner[0].stride < outer[0].stride)
    vector = 1
    if along_input:
        width, height = num_inputs, num_outputs
        if len(inner) == 1 and inner[0].stride == 1 and width >= 128:
            width //= _VECTOR
    else:
        width, height = num_outputs, num_inputs
        if outer[0].stride == 1:
            vector = _vector(outer[0].size, [dim.stride for dim in [*inner, *outer[1:]]])
            width //= vector
    block_width, block_height = _block(width, height, _MOST_THREADS // vector)
    step_input = block_width if along_input else 1
    step_output = 1 if along_input else block_width
    if -(-num_inputs // step_input) < min(16 * block_height, _MOST_VALUES):
        return []  # each warp has outputs of its own
    step_input *= block_height
    values = -(-num_inputs // step_input)
    grid = -(-(num_outputs // vector) // step_output)
    target = processors.number * (processors.threads // (block_width * block_height))
    if values < _MOST_VALUES or grid > target:
        return []
    split = max(min(-(-target // grid), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES))
    if split <= 1:
        return []
    partial = 8 if tensor.dtype is torch.float64 else 4  # the type of the sums
    each = 1 if along_input else block_width * vector
    return [partial * num_outputs * split * each, _COUNTER_BYTES * grid]


def _dimensions(tensor: Tensor, reduced: set[int]) -> tuple[list[_Dimension], list[_Dimension]]:
    """Return the reduced dimensions and the others, fastest first, neighbours in memory as one."""
    dims, stride_out = [], 1
    for index in reversed(range(tensor.dim())):
        is_kept = index not in reduced
        dims.append(_Dimension(tensor.shape[index], tensor.stride(index), stride_out * is_kept))
        stride_out *= tensor.shape[index] if is_kept else 1
    dims = sorted((dim for dim in dims if dim.size > 1), key=lambda dim: dim.stride)
    merged: tuple[list[_Dimension], list[_Dimension]] = ([], [])
    for dim in dims:
        group = merged[dim.stride_out != 0]
        last = group[-1] if group else None
        if last and (last.size * last.stride, last.size * last.stride_out) == (dim.stride, dim.stride_out):
            group[-1] = last._replace(size=last.size * dim.size)
        else:
            group.append(dim)
    return merged


def _vector(size: int, strides: list[int]) -> int:
    """Return the number of outputs that a thread loads at once."""
    vector = _VECTOR
    for number in (size, *strides):
        while number % vector:
            vector //= 2
    return vector


def _block(width: int, height: int, most: int) -> tuple[int, int]:
    """Return the width and height of a block of threads."""
    wide, high = (min(most, 1 << (max(1, length).bit_length() - 1)) for length in (width, height))
    block_width = min(wide, _WARP)
    block_height = min(high, most // block_width)
    return min(wide, most // block_height), block_height
