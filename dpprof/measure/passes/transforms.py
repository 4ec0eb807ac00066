"""Tells in how many transforms of `torch.func` a program is: each lies between an operator and its kernel."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self
from unittest.mock import patch

from torch._functorch import eager_transforms, vmap

# Where torch enters a level of `vmap`, and of `grad` and `vjp`.
_ENTRIES = ((vmap, "vmap_increment_nesting"), (eager_transforms, "grad_increment_nesting"))


class Transforms:
    """Counts, while it is entered, the transforms that the program is in. `called` is told of each call."""

    def __init__(self, called: Callable[[], None]) -> None:
        self._called = called
        self.levels = 0

    def __enter__(self) -> Self:
        self._entered = ExitStack()
        for module, name in _ENTRIES:
            self._entered.enter_context(patch.object(module, name, self._counted(getattr(module, name))))
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.close()

    def _counted(self, entry: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def entered(*args: Any) -> Iterator[Any]:
            self._called()
            with entry(*args) as level:
                self.levels += 1
                try:
                    yield level
                finally:
                    self.levels -= 1

        return entered
