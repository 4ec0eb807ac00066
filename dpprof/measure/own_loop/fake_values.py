"""Values of fake tensors, for a script that asks for them: those that torch knows, unknown numbers otherwise.

torch knows a constant's value as long as it is calculated with constants alone.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves

from dpprof.measure.own_loop.lines import is_logged_now
from dpprof.measure.own_loop.marks import wrapped
from dpprof.measure.own_loop.unknown import OF_FINITE, Unknown, is_unknown, refuse, unknown_numbers

_CONVERT = {"__bool__": bool, "__int__": int, "__index__": int, "__float__": float, "__complex__": complex}
_EXPORT = ("tolist", "numpy", "__array__")
_MAKE = ((torch, "tensor"), (torch, "as_tensor"), (torch, "asarray"), (Tensor, "new_tensor"))


@contextmanager
def unknown_values() -> Iterator[None]:
    """Let fake tensors have unknown values. What decides by one raises EstimateError, with its line."""

    def as_text(original: Any, tensor: Tensor, spec: str) -> str:
        is_number = isinstance(tensor, FakeTensor) and tensor.dim() == 0
        return format(tensor.item(), spec) if is_number else original(tensor, spec)

    with ExitStack() as stack:
        around: dict[str, Any] = {"__format__": as_text, "item": _item, "__deepcopy__": _copy}
        around |= {name: _converted(kind) for name, kind in _CONVERT.items()}
        around |= dict.fromkeys(_EXPORT, _export)
        for name, wrapper in around.items():
            owner = FakeTensor if name in vars(FakeTensor) else Tensor
            stack.enter_context(wrapped(owner, name, wrapper))
        for home in (torch, Tensor):
            for name in (*OF_FINITE, "any", "all"):
                stack.enter_context(wrapped(home, name, _answered(OF_FINITE.get(name))))
        for maker, name in _MAKE:
            stack.enter_context(wrapped(maker, name, _made))
        stack.enter_context(wrapped(FakeTensorMode, "dispatch", _calculated))
        stack.enter_context(unknown_numbers())
        yield


def _item(original: Any, tensor: Tensor) -> Any:
    answer = _noted(tensor)
    try:
        return original(tensor) if answer is None else answer  # torch knows constants
    except DataDependentOutputException:
        return Unknown()


def _converted(kind: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda original, tensor: kind(_item(original, tensor))


def _copy(original: Any, tensor: Tensor, memo: dict[int, Any]) -> Any:
    if not _is_constant(tensor):
        return original(tensor, memo)
    copy = tensor.detach().clone()  # torch would give it a storage without data
    memo[id(tensor)] = copy.requires_grad_(tensor.requires_grad)
    return copy


def _export(original: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(tensor, FakeTensor):
        return original(tensor, *args, **kwargs)
    if tensor.numel() != 1 or not is_logged_now():
        refuse()
    number = np.full(tuple(tensor.shape), tensor.item())
    return number.tolist() if original.__name__ == "tolist" else number


def _answered(is_so: bool | None) -> Callable[..., Any]:
    """Note the answer on the result, if none is given that of the argument."""

    def call(original: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = original(tensor, *args, **kwargs)
        answer = _noted(tensor) if is_so is None else is_so
        if answer is not None and isinstance(tensor, FakeTensor) and tensor.constant is None:
            result.is_so = answer, _version(result)
        return result

    return call


def _noted(tensor: Tensor) -> bool | None:
    answer, version = getattr(tensor, "is_so", None) or (None, 0)
    return answer if answer is None or version == _version(tensor) else None


def _version(tensor: Tensor) -> int:
    """Return how often it was changed in place, which inference mode does not count."""
    return 0 if tensor.is_inference() else tensor._version


def _made(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Make a tensor, which is no constant if an unknown number is in it."""
    made = original(*args, **kwargs)
    if _is_constant(made) and any(isinstance(leaf, Unknown) for leaf in tree_leaves((args, kwargs))):
        _forget(made)
    return made


def _calculated(
    original: Any, mode: FakeTensorMode, func: Any, types: Any, args: Any = (), kwargs: Any = None
) -> Any:
    """Calculate with fake tensors; what an unknown number, by now a float, goes into is no constant."""
    result = original(mode, func, types, args, kwargs)
    given = [args, *(kwargs or {}).values()]
    is_changing = isinstance(func, OpOverload) and func._schema.is_mutable
    results = [result, given] if is_changing else [result]
    if any(map(_is_constant, _leaves(results))) and any(map(_is_unknown, _leaves([given, result]))):
        _forget(results)
    return result


def _leaves(tree: object) -> Iterator[object]:
    """Arguments or results of an operator, one by one; torch's own way takes longer than some operators."""
    if isinstance(tree, list | tuple):
        for each in tree:
            yield from _leaves(each)
    else:
        yield tree


def _is_constant(value: object) -> bool:
    return isinstance(value, FakeTensor) and value.constant is not None


def _is_unknown(value: object) -> bool:
    if isinstance(value, FakeTensor) and value.constant is not None:
        with no_dispatch():
            numbers = value.constant.flatten().tolist()
        # As short floats, all nans are the same.
        is_short = value.dtype.itemsize < torch.float32.itemsize
        return any(number != number if is_short else _is_unknown(number) for number in numbers)
    return isinstance(value, float) and is_unknown(value)


def _forget(tree: object) -> None:
    for tensor in _leaves(tree):
        if isinstance(tensor, FakeTensor) and tensor.constant is not None:
            tensor.fake_mode.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)
