"""Numbers of fake tensors, which nobody knows: they can be logged and calculated with, and decide nothing."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn, Self
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException

from dpprof.errors import EstimateError
from dpprof.measure.own_loop.lines import line_now

REMEDY = "measure it with `dpprof watch` on a smaller batch, without --target"
_ARITHMETIC = "add sub mul truediv floordiv mod pow"
_DECIDES = "lt le gt ge eq ne bool int index trunc floor ceil"
# What nobody knows is taken to be finite.
_OF_FINITE = {"isnan": False, "isinf": False, "isfinite": True}


def _refuse(*_: object) -> NoReturn:
    """Refuse to decide by an unknown number."""
    raise EstimateError(
        f"{line_now() or 'a library'} needs the value of a tensor, which --target does not compute: {REMEDY}"
    )


class Unknown(float):
    """A float that prints as nan; a comparison with it raises EstimateError, which names the line."""

    def __new__(cls, *_: object) -> Self:
        """Make one, whatever it is calculated from."""
        return super().__new__(cls, math.nan)

    def __format__(self, spec: str) -> str:
        """Format as nan, also where digits are wanted."""
        return "nan"

    __hash__ = float.__hash__


for _name in _ARITHMETIC.split():
    for _form in (f"__{_name}__", f"__r{_name}__"):
        setattr(Unknown, _form, lambda *_: Unknown())
for _name in ("neg", "pos", "abs", "round"):
    setattr(Unknown, f"__{_name}__", lambda *_: Unknown())
for _name in _DECIDES.split():
    setattr(Unknown, f"__{_name}__", _refuse)


@contextmanager
def unknown_values(lost: Callable[[str], object]) -> Iterator[None]:
    """Let fake tensors have unknown values; calls `lost` with the line where one becomes a plain nan."""

    def item(original: Any, tensor: Tensor) -> Any:
        answer = getattr(tensor, "is_so", None)
        return _known(original, tensor, Unknown) if answer is None else answer

    def as_float(original: Any, tensor: Tensor) -> float:
        value = _known(original, tensor, Unknown)
        if isinstance(value, Unknown):
            lost(line_now())
        return math.nan if isinstance(value, Unknown) else value

    def decide(original: Any, tensor: Tensor) -> Any:
        answer = getattr(tensor, "is_so", None)
        return _known(original, tensor, _refuse) if answer is None else answer

    with ExitStack() as stack:
        around = {"item": item, "__float__": as_float, "__bool__": decide}
        refused = dict.fromkeys(("__int__", "__index__", "tolist", "numpy", "__array__"), decide)
        for name, wrapper in (around | refused).items():
            stack.enter_context(_around(Tensor, name, wrapper))
        for name, is_so in _OF_FINITE.items():
            stack.enter_context(_around(math, name, _of_number(is_so)))
            for owner in (torch, Tensor):
                stack.enter_context(_around(owner, name, _answered(is_so)))
        for name in ("any", "all"):
            for owner in (torch, Tensor):
                stack.enter_context(_around(owner, name, _same_answer))
        yield


def _around(owner: Any, name: str, wrapper: Callable[..., Any]) -> Any:
    original = getattr(owner, name)
    return patch.object(owner, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))


def _known(original: Any, tensor: Tensor, unknown: Callable[[], Any]) -> Any:
    """Return what torch knows, such as of a constant."""
    try:
        return original(tensor)
    except (DataDependentOutputException, RuntimeError) as error:
        if not isinstance(error, DataDependentOutputException) and "tensor subclasses" not in str(error):
            raise
        return unknown()


def _of_number(is_so: bool) -> Callable[..., Any]:
    return lambda original, value: is_so if isinstance(value, Unknown) else original(value)


def _answered(is_so: bool) -> Callable[..., Any]:
    def wrapper(original: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        result.is_so = is_so
        return result

    return wrapper


def _same_answer(original: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(*args, **kwargs)
    answer = getattr(args[0], "is_so", None) if args else None
    if answer is not None:
        result.is_so = answer
    return result
