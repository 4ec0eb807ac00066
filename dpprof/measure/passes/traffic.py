"""Bytes that an operator reads and writes, and its floating-point operations, from shapes alone.

The bytes are those of eager execution with no cache between operators and a perfect cache within each:
every operand is read once, and every result is written once. So:

- Views are free, and so is allocating memory without touching it (`empty`).
- An in-place operator reads and writes what it changes, once each; one that overwrites it without reading
  it (`copy_`, `zero_`, `normal_`) only writes it.
- An expanded tensor counts only the memory behind it.
- Indexing reads the rows that it picks, not the whole table; scattering reads and writes the rows that it
  scatters to.

Working memory inside an operator is not counted. FLOPs are those of matrix products, convolutions, recurrent
layers and attention (`torch.utils.flop_counter`); a multiplication and an addition count as two. Attention
counts in full even if it is causal, as in torch.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

_aten = torch.ops.aten
_NO_TRAFFIC = {
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "set_",
}
_OVERWRITES = {
    "copy_",
    "zero_",
    "fill_",
    "normal_",
    "uniform_",
    "random_",
    "bernoulli_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "cauchy_",
    "_foreach_zero_",
    "_foreach_copy_",
}
_LOOKS_AT_SHAPE_ONLY = {
    "zeros_like",
    "ones_like",
    "full_like",
    "rand_like",
    "randn_like",
    "randint_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "nll_loss_backward",
    "nll_loss2d_backward",
}
# The argument that only serves as a shape there, where it is not the first.
_SHAPE_ARGUMENT = {"nll_loss_backward": 1, "nll_loss2d_backward": 1}
# Operators that read as much of their first tensor as they return.
_PICKS = {"embedding", "index_select", "gather", "index", "take", "take_along_dim", "nll_loss_forward"}
# Operators that change their first tensor only at given indices.
_SCATTERS = {"scatter_add_", "scatter_", "scatter_reduce_", "index_add_", "index_copy_", "index_put_"}


def footprint(tensor: Tensor) -> int:
    """Bytes of memory behind a tensor's elements: a dimension of stride 0 counts once."""
    if tensor.layout is not torch.strided:
        return 0
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if size == 0:
            return 0
        if stride != 0:
            elements *= size
    return min(elements * tensor.element_size(), tensor.untyped_storage().nbytes())


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among an operator's arguments or results, including those in lists."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


@cache
def _changed_arguments(operator: Any) -> tuple[tuple[bool, ...], frozenset[str], bool]:
    """Which positional arguments an operator writes to, which named ones, and whether these are `out=`."""
    arguments = operator._schema.arguments
    writes = [a.alias_info is not None and a.alias_info.is_write for a in arguments]
    named = frozenset(a.name for a, written in zip(arguments, writes, strict=True) if written)
    return tuple(writes), named, any(a.is_out for a in arguments)


@cache
def _returns_view(operator: Any) -> bool:
    returns = operator._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def makes_nothing(operator: Any) -> bool:
    """Whether an operator (an `OpOverload`) only returns a view, or allocates memory without touching it."""
    return operator._overloadpacket.__name__ in _NO_TRAFFIC or _returns_view(operator)


def bytes_moved(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> tuple[int, int]:
    """Bytes that one call of an operator (an `OpOverload`) reads and writes."""
    name = operator._overloadpacket.__name__
    if makes_nothing(operator):
        return 0, 0
    by_place, by_name, is_out = _changed_arguments(operator)
    changed = list(tensors_in(a for a, written in zip(args, by_place, strict=False) if written))
    changed += tensors_in(value for key, value in kwargs.items() if key in by_name)
    untouched = list(tensors_in(a for a, written in zip(args, by_place, strict=False) if not written))
    untouched += tensors_in(value for key, value in kwargs.items() if key not in by_name)
    known = {t.untyped_storage()._cdata for t in (*changed, *untouched) if t.layout is torch.strided}
    made = [
        t
        for t in tensors_in(result if isinstance(result, list | tuple) else (result,))
        if t.layout is torch.strided and t.untyped_storage()._cdata not in known
    ]
    if not made and not changed:
        return (0, 0) if result is not None and not _is_scalar(result) else (_sum(untouched), 0)
    written = _sum(made) + _sum(changed)
    read = _sum(untouched)
    if name in _SCATTERS:
        written = min(_scattered(name, args), written)
        return read + (written if _adds(name, args) else 0), written
    if name in _PICKS:
        table = footprint(untouched[0])
        read += min(_picked(name, args, (made or changed)[0]), table) - table
    elif name in _LOOKS_AT_SHAPE_ONLY:
        read -= footprint(untouched[_SHAPE_ARGUMENT.get(name, 0)])
    if changed and name not in _OVERWRITES and not is_out:
        read += _sum(changed)
    return read, written


def _picked(name: str, args: tuple[Any, ...], result: Tensor) -> int:
    """Bytes that an indexing operator reads from its table: as many as it returns, or one per target."""
    if name == "nll_loss_forward":
        return int(args[1].numel() * args[0].element_size())
    return footprint(result)


def _scattered(name: str, args: tuple[Any, ...]) -> int:
    """Bytes of its first tensor that a scattering operator changes; with a mask, at most all of them."""
    table = args[0]
    if name == "index_put_":
        indices = [index for index in args[1] if index is not None]
        if any(index.dtype == torch.bool for index in indices):
            return footprint(table)
        kept = [size for dim, size in enumerate(table.shape) if dim >= len(args[1]) or args[1][dim] is None]
        elements = torch.broadcast_shapes(*(index.shape for index in indices)).numel() * math.prod(kept)
    elif name.startswith("scatter"):
        elements = args[2].numel()
    else:
        elements = table.numel() // max(1, table.shape[args[1]]) * args[2].numel()
    return int(elements * table.element_size())


def _adds(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a scattering operator adds to its target instead of overwriting it."""
    return "add" in name or "reduce" in name or (name == "index_put_" and len(args) > 3 and args[3])


def _is_scalar(result: Any) -> bool:
    return isinstance(result, bool | int | float | complex)


def _sum(tensors: Iterable[Tensor]) -> int:
    return sum(footprint(t) for t in tensors)


def _attention_for_cpu(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query.shape, key.shape, value.shape))


def _attention_for_cpu_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> int:
    return int(sdpa_backward_flop_count(grad_out.shape, query.shape, key.shape, value.shape))


def _matrix_vector(matrix: Tensor, vector: Tensor, **_: Any) -> int:
    return 2 * matrix.numel()


def _add_matrix_vector(bias: Tensor, matrix: Tensor, vector: Tensor, **_: Any) -> int:
    return 2 * matrix.numel()


def _recurrent_layer(sequence: Tensor, weight_in: Tensor, weight_hidden: Tensor, *_: Any, **__: Any) -> int:
    """One layer in one direction: both weights multiply every time step of every sample, shape (..., I)."""
    num_steps = sequence.numel() // sequence.shape[-1]
    return 2 * num_steps * (weight_in.numel() + weight_hidden.numel())


def _recurrent_layers(sequence: Tensor, weights: list[Tensor], *_: Any, **__: Any) -> int:
    """All layers and directions at once: the weight matrices and the biases come in one list."""
    num_steps = sequence.numel() // sequence.shape[-1]
    return 2 * num_steps * sum(weight.numel() for weight in weights if weight.ndim == 2)


def _twice(formula: Callable[..., int]) -> Callable[..., int]:
    """Backward: the gradient of the inputs costs as much as that of the weights."""
    return lambda *args, **kwargs: 2 * formula(*args, **kwargs)


# What torch's registry lacks. An unfused recurrent layer consists of matrix products, which the registry has.
_FORMULAS: dict[Any, Callable[..., int]] = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention_for_cpu,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_for_cpu_backward,
    _aten.mkldnn_rnn_layer: _recurrent_layer,
    _aten.mkldnn_rnn_layer_backward: _twice(_recurrent_layer),
    _aten._cudnn_rnn: _recurrent_layers,
    _aten._cudnn_rnn_backward: _twice(_recurrent_layers),
    _aten.mv: _matrix_vector,
    _aten.dot: _matrix_vector,
    _aten.addmv: _add_matrix_vector,
}
# Torch's registry has none of them.
_IN_PLACE = {
    _aten.addmm_: _aten.addmm,
    _aten.baddbmm_: _aten.baddbmm,
    _aten.addmv_: _aten.addmv,
}


def flops(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Floating-point operations of one call of an operator; 0 if it has no formula.

    Products that are added in place, as `addmm_`, count as those that are not.
    """
    packet = _IN_PLACE.get(operator._overloadpacket, operator._overloadpacket)
    if packet in _FORMULAS:
        return _FORMULAS[packet](*args, **kwargs)
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=result))
    return 0
