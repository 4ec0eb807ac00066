"""Finds the tensors that a program holds: Python's, and those that an autograd graph keeps for backward."""

import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torch import Tensor

_SAVED = "_saved_"


def tensors_alive() -> Iterator[Tensor]:
    """Yield every tensor that Python's garbage collector knows, and all that their graphs have saved."""
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), Tensor)]
    yield from found
    nodes = [tensor.grad_fn for tensor in found if tensor.grad_fn is not None]
    seen: set[Any] = set(nodes)
    while nodes:
        node = nodes.pop()
        yield from _saved_by(node)
        for other, _ in node.next_functions:
            if other is not None and other not in seen:
                seen.add(other)
                nodes.append(other)


def _saved_by(node: Any) -> Iterator[Tensor]:
    names = [name for name in dir(node) if name.startswith(_SAVED)]
    for name in ["saved_tensors", *names]:
        with suppress(RuntimeError, AttributeError):  # freed by backward, or of another kind
            value = getattr(node, name)
            for tensor in value if isinstance(value, tuple) else (value,):
                if isinstance(tensor, Tensor):
                    yield tensor
