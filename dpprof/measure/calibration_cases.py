"""The operators that a calibration times, and their sizes: those of a training's steps.

In fp32 they are all that a step does. TF32 changes products and convolutions alone: attention in fp32 has a
kernel whose products are built from three of TF32 each, whatever torch allows. In bf16 they are what forward
and backward do under autocast. There weights, optimizers, embeddings and the noise stay in fp32.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dpprof.vocabulary.precision import BF16, FP32, TF32

# Larger ones are left out, by the device's speed.
MOST_FLOPS, MOST_BYTES = {"cpu": 1e10, "cuda": 2e13}, {"cpu": 2**27, "cuda": 2**32}
_VOCABULARY = 32_000
# Channels and sides of the images within residual networks, for large images and for small ones.
_STAGES = ((64, 56), (128, 28), (256, 14), (512, 7), (64, 16), (128, 8), (256, 4), (512, 2))
# Optimizers get lists of tensors: so many.
_PARAMETERS = 16
_FUSED_SGD = partial(
    torch._fused_sgd_,
    **{"lr": 1e-3, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0},
    **{"nesterov": False, "maximize": False, "is_first_step": False},
)
_FUSED_ADAMW = partial(
    torch._fused_adamw_,
    **{"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8},
    **{"amsgrad": False, "maximize": False},
)
Shape = tuple[int, ...]


class Case(NamedTuple):
    """An operator, the shapes of random tensors, what makes its arguments of these, and their type.

    Without a type it is that of the precision, which `cases` fills in.
    """

    work: Callable[..., Any]
    shapes: tuple[Shape, ...]
    prepare: Callable[..., tuple[Any, ...]] = lambda *tensors: tensors
    dtype: torch.dtype | None = None


def cases(precision: str, device: str, most_flops: float, most_bytes: float) -> Iterator[Case]:
    """Yield the operators and sizes to measure in a precision: fp32, tf32 or bf16.

    A product has at most `most_flops` FLOPs, and the tensors of any other operator have at most `most_bytes`
    bytes together, in fp32. On a GPU, fp32 also has what optimizers do there: lists of tensors at a time.
    """
    dtype = torch.bfloat16 if precision == BF16 else torch.float32
    for case in itertools.chain(_products(most_flops), _others(precision, device, most_bytes)):
        yield case._replace(dtype=case.dtype or dtype)


def _others(precision: str, device: str, most_bytes: float) -> Iterator[Case]:
    """Yield all but products."""
    found = [_convolutions()]
    if precision != TF32:
        found += [_unfolded(), _of_rows(), _of_elements()]
    if precision == FP32:
        found.append(_kept_in_fp32())
        if device == "cuda":
            found.append(_on_gpu())
    if precision == BF16:
        found.append(_casts())
    for case in itertools.chain(*found):
        if sum(4 * math.prod(shape) for shape in case.shapes) <= most_bytes:
            yield case


def _products(most_flops: float) -> Iterator[Case]:
    """Yield products in the layouts of forward and of both gradients."""
    sides = (64, 256, 1024, 4096)
    alone = (size for size in itertools.product((*sides, 16384), sides, sides) if math.prod(size) >= 2**18)
    inner = [(64, 64, 64), (256, 256, 64), (256, 64, 256), (64, 1024, 256), (256, 1024, 256), (768, 3072, 64)]
    inner += [(512, 4608, 4), (2048, 512, 4), (256, 2304, 16), (64, 576, 256)]  # gradients of convolutions
    batched = itertools.product(((2,), (8,), (32,), (96,)), inner)
    for b, (m, n, k) in itertools.chain((((), size) for size in alone), batched):
        if 2 * math.prod((*b, m, n, k)) <= most_flops and math.prod((*b, m, n)) <= 2**26:
            yield Case(_by_transposed, ((*b, m, k), (*b, n, k)))
            yield Case(lambda left, right: left.mT @ right, ((*b, k, m), (*b, k, n)))
    yield Case(_by_transposed, ((8, 32768, 64), (8, 1024, 64)))  # as per-sample gradients of an embedding


def _by_transposed(left: Tensor, right: Tensor) -> Tensor:
    return left @ right.mT


def _convolutions() -> Iterator[Case]:
    """Yield the convolutions of residual networks and of patch embeddings."""
    kinds = [(3, 64, 7, 224, 2), (3, 768, 16, 224, 16), (256, 512, 1, 56, 2), (1024, 2048, 1, 14, 2)]
    kinds += [(width, width, 3, side, 1) for width, side in _STAGES]
    kinds += [(width, 4 * width, 1, side, 1) for width, side in _STAGES]
    kinds += [(4 * width, width, 1, side, 1) for width, side in _STAGES]
    for batch, (inner, outer, filter_side, side, stride) in itertools.product((2, 8), kinds):
        padding = 0 if stride == filter_side else filter_side // 2
        work = partial(F.conv2d, stride=stride, padding=padding)
        shapes = (batch, inner, side, side), (outer, inner, filter_side, filter_side)
        yield from _with_gradients(work, *shapes)
        if batch == 8:
            for alone in range(2):
                yield Case(_gradient, shapes, partial(_prepared, work, _as_given, alone=alone))


def _unfolded() -> Iterator[Case]:
    """Yield what per-sample gradients of convolutions of 3 x 3 unfold."""
    for batch, (width, side) in itertools.product((2, 8), _STAGES):
        yield from _with_gradients(partial(F.unfold, kernel_size=3, padding=1), (batch, width, side, side))


def _of_rows() -> Iterator[Case]:
    for rows, columns in itertools.product((128, 1024, 8192, 65536), (64, 256, 1024, _VOCABULARY)):
        if rows * columns <= 2**26:
            yield from _with_gradients(partial(F.softmax, dim=-1), (rows, columns))
            yield from _with_gradients(partial(F.log_softmax, dim=-1), (rows, columns))
            if columns <= 1024:
                shapes = (rows, columns), (columns,), (columns,)
                yield from _with_gradients(lambda x, w, b: F.layer_norm(x, w.shape, w, b), *shapes)
    for batch, (channels, side) in itertools.product((2, 8), ((64, 56), (256, 56), (1024, 14), (2048, 7))):
        norm, weight = (lambda x, w, b: F.group_norm(x, 32, w, b)), (channels,)
        yield from _with_gradients(norm, (batch, channels, side, side), weight, weight)
    attend = partial(F.scaled_dot_product_attention, is_causal=True)
    for batch, heads, positions in itertools.product((2, 8), (4, 12), (64, 256, 512)):
        yield from _with_gradients(attend, *[(batch, heads, positions, 64)] * 3)


def _of_elements() -> Iterator[Case]:
    one_operand: tuple[Callable[[Tensor], Any], ...] = (
        torch.clone,
        torch.tanh,
        torch.exp,
        torch.linalg.vector_norm,
        partial(torch.mul, other=0.5),
        partial(torch.sum, dim=0),
        partial(torch.sum, dim=1),
        partial(Tensor.mul_, other=0.5),
        lambda x: x.T.contiguous(),
        lambda x: torch.empty_like(x).bernoulli_(0.9),  # as dropout
    )
    for power in range(12, 29, 4):
        yield Case(torch.zeros_like, ((1,),), partial(lambda size, x: (x.expand(size),), 2**power))
    for square in _squares():
        yield from (Case(work, (square,)) for work in one_operand)
        yield from (
            Case(work, (square, square)) for work in (torch.add, torch.mul, Tensor.add_, Tensor.copy_)
        )
        for work in (F.gelu, F.relu):
            yield from _with_gradients(work, square)


def _squares() -> Iterator[Shape]:
    return ((2**power, 2**power) for power in range(6, 14))


def _kept_in_fp32() -> Iterator[Case]:
    """Yield what stays in fp32 under autocast: noise, embeddings, sorts, and an optimizer's update."""
    for square in _squares():
        yield from (Case(work, (square,)) for work in (torch.randn_like, partial(torch.sort, dim=-1)))
        yield Case(lambda x, y: torch._foreach_add_([x], [y]), (square, square))
        yield Case(lambda x, y: x.addcdiv_(x, y, value=-1e-3), (square, square))
        tokens, table = square[:1], (_VOCABULARY, min(1024, square[0]))
        yield Case(F.embedding, (tokens, table), _with_ids)
        yield Case(_gradient, (tokens, table), partial(_prepared, F.embedding, _with_ids))


def _casts() -> Iterator[Case]:
    """Yield what autocast does with weights and inputs in forward, and with gradients in backward."""
    for square in _squares():
        for of, to in itertools.permutations((torch.float32, torch.bfloat16)):
            yield Case(partial(Tensor.to, dtype=to), (square,), dtype=of)


def _on_gpu() -> Iterator[Case]:
    """Yield the noise in place, and what SGD and AdamW do with lists of parameters: foreach and fused."""
    of_lists: tuple[tuple[Callable[..., Any], int], ...] = (
        (lambda x: torch._foreach_mul_(x, 0.9), 1),  # weight decay; momentum and moments
        (partial(torch._foreach_add_, alpha=-1e-3), 2),
        (partial(torch._foreach_lerp_, weight=0.1), 2),
        (lambda x, y: torch._foreach_addcmul_(x, y, y, 1e-3), 2),
        (torch._foreach_sqrt, 1),
        (lambda x: torch._foreach_div_(x, [0.9] * len(x)), 1),
        (lambda x, y, z: torch._foreach_addcdiv_(x, y, z, [-1e-3] * len(x)), 3),
        (_FUSED_SGD, 3),
        (_FUSED_ADAMW, 4),
    )
    for square in _squares():
        yield Case(Tensor.normal_, (square,))
    for power in (7, 9, 11, 13):
        for work, lists in of_lists:
            prepare = _with_steps if work is _FUSED_ADAMW else _as_lists
            yield Case(work, ((2**power, 2**power),) * lists, prepare)


def _as_lists(*tensors: Tensor) -> tuple[list[Tensor], ...]:
    """Return each tensor in parts, as a list of parameters."""
    return tuple(list(each.chunk(_PARAMETERS)) for each in tensors)


def _with_steps(*tensors: Tensor) -> tuple[list[Tensor], ...]:
    """The same; then no highest moments, and the numbers of steps done, which lie on the device too."""
    steps = [torch.ones((), device=tensors[0].device) for _ in range(_PARAMETERS)]
    return *_as_lists(*tensors), [], steps


def _with_ids(numbers: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    return (numbers.abs() * _VOCABULARY).long() % _VOCABULARY, table


def _with_gradients(work: Callable[..., Tensor], *shapes: Shape) -> Iterator[Case]:
    """Yield an operator, and its gradients by all of its tensors."""
    yield Case(work, shapes)
    yield Case(_gradient, shapes, partial(_prepared, work, _as_given))


def _as_given(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tensors


def _prepared(
    work: Callable[..., Tensor],
    prepare: Callable[..., tuple[Tensor, ...]],
    *tensors: Tensor,
    alone: int | None = None,
) -> tuple[Any, ...]:
    """Run forward; return its output, a gradient of it, and the inputs with gradients: all, or one alone."""
    inputs = prepare(*tensors)
    chosen = inputs if alone is None else inputs[alone : alone + 1]
    floating = [each.requires_grad_() for each in chosen if each.is_floating_point()]
    output = work(*inputs)
    return output, torch.ones_like(output), floating


def _gradient(output: Tensor, gradient: Tensor, inputs: list[Tensor]) -> Any:
    return torch.autograd.grad(output, inputs, gradient, retain_graph=True)
