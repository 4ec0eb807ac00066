"""The traffic of every operator that a piece of code calls, and operands for tests of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dpprof.measure.passes.traffic import bytes_moved, flops


class Call(NamedTuple):
    operator: str
    read: int
    written: int
    flops: int


class Calls(TorchDispatchMode):
    """Notes the traffic of every operator called."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        num_flops = flops(func, args, kwargs, result)
        name = func._overloadpacket.__name__
        self.rows.append(Call(name, *bytes_moved(func, args, kwargs, result), num_flops))
        return result


def calls(run: Callable[[], object]) -> list[Call]:
    noted = Calls()
    with noted:
        run()
    return noted.rows


def the_call(operator: str, run: Callable[[], object]) -> Call:
    """The one call of an operator; older torch passes a detach on twice, with the same tensors."""
    (found,) = {call for call in calls(run) if call.operator == operator}
    return found


def moved(operator: str, run: Callable[[], object]) -> tuple[int, int]:
    found = the_call(operator, run)
    return found.read, found.written


A, B = torch.ones(3, 5), torch.ones(5, 7)


# Bytes of these.
SIZE_A, SIZE_B = 4 * 15, 4 * 35


def floats(*shape: int) -> Tensor:
    return torch.ones(*shape)


def indices(*values: int) -> Tensor:
    return torch.tensor(values)
