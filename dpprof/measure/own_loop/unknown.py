"""Stand-in for a fake tensor's value: arithmetic and printing give nan, a comparison raises EstimateError.

C code that reads a float itself, as `array`, `struct` and `decimal` do, gets nan.
"""

import cmath
import inspect
import math
import random
import statistics
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from numbers import Number
from typing import Any, NoReturn, Self

import numpy as np
from torch import Tensor

from dpprof.errors import EstimateError
from dpprof.measure.own_loop.lines import is_logged_now, line_now
from dpprof.measure.own_loop.marks import wrapped

REMEDY = "measure it with `dpprof watch` on a smaller batch, without --target"
# What nobody knows is taken to be finite.
OF_FINITE = {"isnan": False, "isinf": False, "isfinite": True}
# A nan that nothing calculates, and that stays itself as a float32: scripts have nans of their own.
_BITS = struct.pack("=Q", 0x7FFD5500_00000000)
(_NAN,) = struct.unpack("=d", _BITS)

# Methods of a float, without underscores: those that neither calculate nor do without the value decide.
_OF_TWO = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow")
_CALCULATE = {*_OF_TWO, *(f"r{name}" for name in _OF_TWO), "neg", "pos", "abs", "round"}
_COMPARE = {"lt", "le", "gt", "ge", "eq", "ne"}
_DO_WITHOUT = {"new", "repr", "getattribute", "getnewargs"}  # the others belong to the class
_DO_WITHOUT |= {"getformat", "setformat", "fromhex", "from_number"}
# Where functions of numbers come from, and where they go.
_OF_NUMBERS = (math, cmath, statistics)
_TAKEN_INTO = (*_OF_NUMBERS, random)


def refuse() -> NoReturn:
    """Raise EstimateError, which names the line that needs a value."""
    line = line_now() or "a library"
    raise EstimateError(f"{line} needs the value of a tensor, which --target does not compute: {REMEDY}")


def is_unknown(number: float) -> bool:
    """Tell if a number is unknown, also after C code made a plain float of it."""
    return struct.pack("=d", number) == _BITS


class Unknown(float):
    """A float that prints as nan, and so do numbers calculated from it.

    What decides by it raises EstimateError, which names the line: a comparison, or a conversion to a number
    of another type, `float(x)` too. In a library for logs it is a nan.
    """

    def __new__(cls, *_: object) -> Self:
        """Make one, whatever it is calculated from."""
        return super().__new__(cls, _NAN)

    def __format__(self, spec: str) -> str:
        """Format as nan, also where digits are wanted."""
        return "nan"

    def __complex__(self) -> complex:
        """Refuse to be a plain number."""
        return complex(math.nan if is_logged_now() else refuse())

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
        """Answer as the functions of `math` do; numpy's on arrays need the value."""
        if is_logged_now():
            plain = (math.nan if isinstance(each, Unknown) else each for each in inputs)
            return getattr(ufunc, method)(*plain, **more)
        is_of_numbers = all(isinstance(each, Number) or np.shape(each) == () for each in inputs)
        gives_float = "d" * ufunc.nin + "->d" in ufunc.types
        if method != "__call__" or more or not is_of_numbers:
            refuse()
        if ufunc.__name__ in OF_FINITE:
            return np.bool_(OF_FINITE[ufunc.__name__])
        return Unknown() if gives_float else refuse()

    def conjugate(self) -> "Unknown":
        """Return its conjugate, as little known."""
        return Unknown()

    @property
    def real(self) -> "Unknown":
        """Its real part, as little known."""
        return Unknown()

    @property
    def imag(self) -> "Unknown":
        """Its imaginary part: it may stand for a complex number."""
        return Unknown()


def _calculation(of_float: Callable[..., Any]) -> Callable[..., Any]:
    def calculate(self: Unknown, *others: Any) -> Any:
        if not others or others[0] is None:  # rounds to a whole number, or has no other
            return Unknown()
        answer = of_float(self, *others)
        if answer is NotImplemented and not isinstance(others[0], complex):
            return answer  # tensors and arrays know how
        return (Unknown(), Unknown()) if isinstance(answer, tuple) else Unknown()

    return calculate


def _decision(of_float: Callable[..., Any], *, compares: bool) -> Callable[..., Any]:
    def decide(self: Unknown, *others: Any) -> Any:
        if compares and not isinstance(others[0], Number):
            return NotImplemented  # a tensor knows how, and nothing else equals a number
        return of_float(self, *others) if is_logged_now() else refuse()

    return decide


for _name, _method in vars(float).items():
    _short = _name.strip("_")
    if _short in _CALCULATE:
        setattr(Unknown, _name, _calculation(_method))
    elif callable(_method) and _name not in vars(Unknown) and _short not in _DO_WITHOUT:
        setattr(Unknown, _name, _decision(_method, compares=_short in _COMPARE))


@contextmanager
def unknown_numbers() -> Iterator[None]:
    """Let functions of `math`, `cmath` and `statistics` take unknown numbers."""
    names = {module.__name__ for module in _OF_NUMBERS}
    with ExitStack() as stack:
        for module in _TAKEN_INTO:
            for name, function in list(vars(module).items()):
                is_public = inspect.isroutine(function) and not function.__name__.startswith("_")
                if is_public and function.__module__ in names:
                    stack.enter_context(wrapped(module, name, _answer))
        yield


def _answer(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function of numbers. Where one is unknown, so is the answer; one that is no float decides."""
    args, kwargs = tuple(map(_kept, args)), {name: _kept(each) for name, each in kwargs.items()}
    unknown = list[Unknown]()
    plain = [_plain(each, unknown) for each in args]
    named = {name: _plain(each, unknown) for name, each in kwargs.items()}
    if not unknown:
        return original(*args, **kwargs)
    if original.__name__ in OF_FINITE:
        return OF_FINITE[original.__name__]
    try:
        answer = original(*plain, **named)
    except (ValueError, AttributeError):  # nan has no whole number and no ratio
        if is_logged_now():
            raise
        refuse()
    is_float = isinstance(answer, float | complex)
    return Unknown() if is_float else answer if is_logged_now() else refuse()


def _kept(argument: Any) -> Any:
    """Return the number of a tensor, and what a generator gives but once."""
    if isinstance(argument, Tensor) and argument.dim() == 0:
        return argument.item()
    return list(argument) if isinstance(argument, Iterator) else argument


def _plain(argument: Any, unknown: list[Unknown]) -> Any:
    """Return nan for an unknown number, and add it to those; the same for those of an iterable."""
    if isinstance(argument, Unknown):
        unknown.append(argument)
        return math.nan
    is_plain = isinstance(argument, str | bytes | Tensor | np.ndarray) or not isinstance(argument, Iterable)
    return argument if is_plain else [_plain(each, unknown) for each in argument]
