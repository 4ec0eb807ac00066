"""Counts the bytes that an operator reads and writes, and its FLOPs, from shapes alone.

The bytes are those of eager execution with no cache between operators and a perfect cache within each: every
operand is read once, and every result is written once. So:

- Views are free, and so is allocating memory without touching it (`empty`).
- An in-place operator reads and writes what it changes; one that overwrites it (`copy_`, `zero_`, `normal_`)
  only writes.
- An expanded tensor counts only the memory behind it.
- Indexing reads only the rows it picks; scattering reads and writes only the rows it changes.

Working memory inside an operator is not counted. FLOPs are those of matrix products, convolutions, recurrent
layers and attention (`torch.utils.flop_counter`); a multiplication and an addition count as two. Causal
attention counts in full, as in torch.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from dpprof.measure.passes.storages import Life, Storages

_aten = torch.ops.aten
# Matrix products that take fp32 inputs unrounded; cuDNN may round those of its own operators.
PRODUCTS = {_aten.mm, _aten.addmm, _aten.addmm_, _aten.bmm, _aten.baddbmm, _aten.baddbmm_}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NO_TRAFFIC = _names("empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_ set_")
_OVERWRITES = _names(
    "copy_ zero_ fill_ normal_ uniform_ random_ bernoulli_ exponential_ geometric_ log_normal_ cauchy_ "
    "_foreach_zero_ _foreach_copy_"
)
# Index of an argument that only serves as a shape. So does the first one of `zeros_like` and `new_zeros`.
_SHAPE_ARGUMENT = {"nll_loss_backward": 1, "nll_loss2d_backward": 1}
# Operators that read as much of their first tensor as they return.
_PICKS = {"embedding", "index_select", "gather", "index", "take", "take_along_dim", "nll_loss_forward"}
# Operators that change their first tensor only at given indices.
_SCATTERS = {"scatter_add_", "scatter_", "scatter_reduce_", "index_add_", "index_copy_", "index_put_"}


def footprint(tensor: Tensor) -> int:
    """Return the bytes of memory behind a tensor's elements; a dimension of stride 0 counts once."""
    if tensor.layout is not torch.strided:
        return 0
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if size == 0:
            return 0
        if stride != 0:
            elements *= size
    return min(elements * tensor.element_size(), tensor.untyped_storage().nbytes())


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among an operator's arguments or results, including those in lists."""
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += tensors_in(value)
    return found


@cache
def _changed_arguments(operator: Any) -> tuple[tuple[bool, ...], frozenset[str], bool]:
    """Return which arguments an operator writes to, by position and by name, and if it has an `out=`."""
    arguments = operator._schema.arguments
    writes = [a.alias_info is not None and a.alias_info.is_write for a in arguments]
    named = frozenset(a.name for a, written in zip(arguments, writes, strict=True) if written)
    return tuple(writes), named, any(a.is_out for a in arguments)


@cache
def makes_nothing(operator: Any) -> bool:
    """Tell if an operator (`OpOverload`) only returns a view, or allocates memory without touching it."""
    if operator._overloadpacket.__name__ in _NO_TRAFFIC:
        return True
    returns = operator._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


# Tensors of one operator call: those that it changes, only reads, and makes.
Operands = tuple[list[Tensor], list[Tensor], list[Tensor]]


def operands(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Operands:
    """Return the tensors of one operator call (`OpOverload`) by what it does with them."""
    by_place, by_name, _ = _changed_arguments(operator)
    if not by_name:
        changed, untouched = [], tensors_in((*args, *kwargs.values()))
    else:
        changed = tensors_in(a for a, written in zip(args, by_place, strict=False) if written)
        changed += tensors_in(value for key, value in kwargs.items() if key in by_name)
        untouched = tensors_in(a for a, written in zip(args, by_place, strict=False) if not written)
        untouched += tensors_in(value for key, value in kwargs.items() if key not in by_name)
    known = {t.untyped_storage()._cdata for t in (*changed, *untouched) if t.layout is torch.strided}
    made = [
        t
        for t in tensors_in(result if isinstance(result, list | tuple) else (result,))
        if t.layout is torch.strided and t.untyped_storage()._cdata not in known
    ]
    return changed, untouched, made


def bytes_moved(operator: Any, args: tuple[Any, ...], result: Any, tensors: Operands) -> tuple[int, int]:
    """Return the bytes that one operator call (`OpOverload`) reads and writes of its tensors."""
    if makes_nothing(operator):
        return 0, 0
    name = operator._overloadpacket.__name__
    changed, untouched, made = tensors
    is_out = _changed_arguments(operator)[2]
    if not made and not changed:
        is_scalar = isinstance(result, bool | int | float | complex)
        return (_sum(untouched), 0) if result is None or is_scalar else (0, 0)
    written = _sum(made) + _sum(changed)
    read = _sum(untouched)
    if name in _SCATTERS:
        written = min(_scattered(name, args), written)
        adds = "add" in name or "reduce" in name or (name == "index_put_" and len(args) > 3 and args[3])
        return read + (written if adds else 0), written
    if name in _PICKS:
        table, picked = footprint(untouched[0]), footprint((made or changed)[0])
        if name == "nll_loss_forward":
            picked = args[1].numel() * args[0].element_size()
        read += min(picked, table) - table
    elif name in _SHAPE_ARGUMENT or (
        operator.namespace == "aten" and (name.endswith("_like") or name.startswith("new_"))
    ):
        read -= footprint(untouched[_SHAPE_ARGUMENT.get(name, 0)])
    if changed and name not in _OVERWRITES and not is_out:
        read += _sum(changed)
    return read, written


def _scattered(name: str, args: tuple[Any, ...]) -> int:
    """Return the bytes that a scattering operator changes in its first tensor; with a mask, at most all."""
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


def _sum(tensors: Iterable[Tensor]) -> int:
    return sum(footprint(t) for t in tensors)


def _matrix_vector(*tensors: Tensor, **_: Any) -> int:
    """Count a matrix times a vector, the last two tensors; a bias comes before."""
    return 2 * tensors[-2].numel()


def _recurrent_layer(sequence: Tensor, weight_in: Tensor, weight_hidden: Tensor, *_: Any, **__: Any) -> int:
    """Count one layer in one direction: both weights multiply each time step of each sample, (..., I)."""
    num_steps = sequence.numel() // sequence.shape[-1]
    return 2 * num_steps * (weight_in.numel() + weight_hidden.numel())


def _recurrent_layers(sequence: Tensor, weights: list[Tensor], *_: Any, **__: Any) -> int:
    """Count all layers and directions: weight matrices and biases come in one list."""
    num_steps = sequence.numel() // sequence.shape[-1]
    return 2 * num_steps * sum(weight.numel() for weight in weights if weight.ndim == 2)


def _twice(formula: Callable[..., int]) -> Callable[..., int]:
    """Count backward: the gradient of the inputs costs as much as that of the weights."""
    return lambda *args, **kwargs: 2 * formula(*args, **kwargs)


# Missing in torch's registry. Unfused recurrent layers consist of matrix products, which it has.
_FORMULAS: dict[Any, Callable[..., int]] = {
    _aten.mkldnn_rnn_layer: _recurrent_layer,
    _aten.mkldnn_rnn_layer_backward: _twice(_recurrent_layer),
    _aten._cudnn_rnn: _recurrent_layers,
    _aten._cudnn_rnn_backward: _twice(_recurrent_layers),
    _aten.mv: _matrix_vector,
    _aten.dot: _matrix_vector,
    _aten.addmv: _matrix_vector,
}
# Missing too: in-place variants, and the CPU's attention. They count as these.
_COUNTED_AS = {
    _aten.addmm_: _aten.addmm,
    _aten.baddbmm_: _aten.baddbmm,
    _aten.addmv_: _aten.addmv,
    _aten._scaled_dot_product_flash_attention_for_cpu: _aten._scaled_dot_product_flash_attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        _aten._scaled_dot_product_flash_attention_backward
    ),
}


def flops(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Return the FLOPs of one operator call, also of in-place products; 0 if it has no formula."""
    formula = _formula(operator)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=result))


@cache
def _formula(operator: Any) -> Callable[..., int] | None:
    """Return an operator's formula: ours, or torch's, which gets the result as `out_val`."""
    packet = _COUNTED_AS.get(operator._overloadpacket, operator._overloadpacket)
    return _FORMULAS.get(packet) or flop_registry.get(packet)


class Cache:
    """A cache of `size` bytes with the storages that operators touched last.

    What it holds is read without the memory. What is written goes to memory when other storages drive it out,
    if it is still alive then. In doubt the cache holds too much: parts of a storage count as the same part,
    and before the first operator it held whatever is read. So the bytes moved are a lower bound for any cache
    that keeps the most recently used data.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._unknown, self._total = size, 0
        self._held: dict[Life, int] = {}  # least recently touched first
        self._unwritten: dict[Life, int] = {}

    def traffic(self, storages: Storages, tensors: Operands, read: int, written: int) -> int:
        """Return `to_memory` for an operator that reads and writes so many bytes of these tensors."""

        def of_storages(tensors: Iterable[Tensor], most: int) -> dict[Life, int]:
            found: dict[Life, int] = {}
            for tensor in tensors:
                life = storages.see(tensor)
                if life is not None:
                    found[life] = min(found.get(life, 0) + footprint(tensor), life.num_bytes, most)
            return found

        changed, untouched, made = tensors
        touched = of_storages((*untouched, *changed, *made), read + written)
        return self.to_memory(touched, of_storages((*changed, *made), written), read)

    def to_memory(self, touched: Mapping[Life, int], written: Mapping[Life, int], read: int) -> int:
        """Return a lower bound of the bytes that one operator moves between cache and memory."""
        missed = max(0, read - sum(self._held.get(life, 0) for life in touched))
        found = max(0, missed - self._unknown)
        self._unknown -= missed - found
        for life, num_bytes in touched.items():
            before = self._held.pop(life, 0)
            self._held[life] = min(self._size, max(num_bytes, before))
            self._total += self._held[life] - before
        for life, num_bytes in written.items():
            kept = min(num_bytes, self._held[life])
            found += num_bytes - kept
            self._unwritten[life] = max(kept, self._unwritten.get(life, 0))
        return found + self._drive_out()

    def _drive_out(self) -> int:
        """Evict what does not fit. Returns the bytes of it that must be written to memory."""
        found = 0
        for life in [life for life in self._held if not life.alive] if self._total > self._size else ():
            self._total -= self._held.pop(life)
            self._unwritten.pop(life, None)
        while self._total > self._size:
            life, held = next(iter(self._held.items()))
            left = max(0, held - (self._total - self._size))
            self._total -= held - left
            unwritten = self._unwritten.pop(life, 0)
            found += max(0, unwritten - left)
            if left:  # it stays the first
                self._held[life], self._unwritten[life] = left, min(unwritten, left)
            else:
                del self._held[life]
        return found
