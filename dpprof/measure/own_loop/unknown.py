"""Numbers of fake tensors, which nobody knows: they can be logged and calculated with, and decide nothing."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn, Self

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor

from dpprof.errors import EstimateError
from dpprof.measure.own_loop.lines import line_now
from dpprof.measure.own_loop.marks import wrapped

REMEDY = "measure it with `dpprof watch` on a smaller batch, without --target"
_CALCULATES = "add sub mul truediv floordiv mod pow radd rsub rmul rtruediv rpow neg pos abs round"
_DECIDES = "lt le gt ge eq ne bool int trunc floor ceil"
# What nobody knows is taken to be finite.
_OF_FINITE = {"isnan": False, "isinf": False, "isfinite": True}


def _refuse(*_: object) -> NoReturn:
    line = line_now() or "a library"
    raise EstimateError(f"{line} needs the value of a tensor, which --target does not compute: {REMEDY}")


class Unknown(float):
    """A float that prints as nan; a comparison with it raises EstimateError, which names the line."""

    def __new__(cls, *_: object) -> Self:
        """Make one, whatever it is calculated from."""
        return super().__new__(cls, math.nan)

    def __format__(self, spec: str) -> str:
        """Format as nan, also where digits are wanted."""
        return "nan"

    __hash__ = float.__hash__


for _name in _CALCULATES.split():
    setattr(Unknown, f"__{_name}__", lambda *_: Unknown())
for _name in _DECIDES.split():
    setattr(Unknown, f"__{_name}__", _refuse)


@contextmanager
def unknown_values(lost: Callable[[str], object]) -> Iterator[None]:
    """Let fake tensors have unknown values; calls `lost` with the line where one becomes a plain nan."""

    def as_float(original: Any, tensor: Tensor) -> float:
        value = _item(original, tensor)
        if isinstance(value, Unknown):
            lost(line_now())
        return math.nan if isinstance(value, Unknown) else value

    def as_text(original: Any, tensor: Tensor, spec: str) -> str:
        is_number = isinstance(tensor, FakeTensor) and tensor.dim() == 0
        return format(tensor.item(), spec) if is_number else original(tensor, spec)

    with ExitStack() as stack:
        decided = dict.fromkeys(("__bool__", "__int__", "__index__"), _decide)
        exported = dict.fromkeys(("tolist", "numpy", "__array__"), _export)
        around: dict[str, Any] = {"__format__": as_text, "item": _item, "__float__": as_float}
        around |= decided | exported
        for name, wrapper in around.items():
            owner = FakeTensor if name in vars(FakeTensor) else Tensor
            stack.enter_context(wrapped(owner, name, wrapper))
        for place in (torch, Tensor):
            for name in (*_OF_FINITE, "any", "all"):
                stack.enter_context(wrapped(place, name, _answered(_OF_FINITE.get(name))))
        for name, is_so in _OF_FINITE.items():
            stack.enter_context(wrapped(math, name, _of_number(is_so)))
        yield


def _item(original: Any, tensor: Tensor, unknown: Callable[[], Any] = Unknown) -> Any:
    answer = getattr(tensor, "is_so", None)
    try:
        return original(tensor) if answer is None else answer  # torch knows constants
    except DataDependentOutputException:
        return unknown()


def _decide(original: Any, tensor: Tensor) -> Any:
    return _item(original, tensor, _refuse)


def _export(original: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    return _refuse() if isinstance(tensor, FakeTensor) else original(tensor, *args, **kwargs)


def _of_number(is_so: bool) -> Callable[..., Any]:
    return lambda original, value: is_so if isinstance(value, Unknown) else original(value)


def _answered(is_so: bool | None) -> Callable[..., Any]:
    """Note the answer on the result, if none is given that of the argument."""

    def call(original: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = original(tensor, *args, **kwargs)
        answer = getattr(tensor, "is_so", None) if is_so is None else is_so
        if answer is not None and isinstance(tensor, FakeTensor):
            result.is_so = answer
        return result

    return call
