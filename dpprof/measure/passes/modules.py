"""Finds the module of a model that an operator works for, in forward and in backward.

Forward: global module hooks keep a stack of the modules being called. Backward: autograd gives every node
a sequence number when it creates it, so the node being run leads back to its place in forward.
"""

import bisect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn
from torch._C._autograd import _get_sequence_nr as get_sequence_nr
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from dpprof.measure.passes.traffic import tensors_in

_OUT_OF_FORWARD = 2**63  # AccumulateGrad has the largest number there is


class _Thread:
    """The modules being called in one thread, and the sequence number at which each became the innermost."""

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.around = ExitStack()
        self.starts: list[int] = []
        self.paths: list[str] = []

    def note(self, start: int) -> None:
        while self.starts and self.starts[-1] >= start:
            self.starts.pop()
            self.paths.pop()
        self.starts.append(start)
        self.paths.append(self.stack[-1] if self.stack else "")


class ModulePaths:
    """Follows module calls while it is entered. `around()` makes the context of each outermost call."""

    def __init__(self, around: Callable[[], AbstractContextManager[None]]) -> None:
        self._around = around
        self._names: dict[int, str] = {}
        self._threads: dict[int, _Thread] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        self._handles = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def name(self, model: nn.Module) -> None:
        """Learn the paths of a model's modules, and forget what was called before."""
        self._names = {id(module): path for path, module in model.named_modules()}
        self._threads.clear()

    def _enter_module(self, module: nn.Module, args: object) -> None:
        thread = self._thread()
        if not thread.stack:
            thread.around.enter_context(self._around())
        thread.stack.append(self._names.get(id(module), thread.stack[-1] if thread.stack else ""))
        thread.note(get_sequence_nr())

    def _leave_module(self, module: nn.Module, args: object, output: object) -> None:
        thread = self._thread()
        if thread.stack:
            thread.stack.pop()
        if not thread.stack:
            thread.around.close()
        # A module with backward hooks makes one more node, for its output, after these hooks.
        hooked = bool(module._backward_hooks or module._backward_pre_hooks) and torch.is_grad_enabled()
        made_after = int(hooked and any(t.requires_grad for t in tensors_in((output,))))
        thread.note(get_sequence_nr() + made_after)

    def _thread(self) -> _Thread:
        ident = threading.get_ident()
        found = self._threads.get(ident)
        if found is None:
            found = self._threads[ident] = _Thread()
        return found

    def current(self) -> str:
        """The path of the module that the operator being run works for; empty if it is unknown.

        With forward calls in several threads (a recomputation in autograd's own thread) sequence numbers
        may be ambiguous: then the module is unknown.
        """
        stack = self._thread().stack
        if stack:
            return stack[-1]
        node = torch._C._current_autograd_node()
        number = node._sequence_nr() if node is not None else _OUT_OF_FORWARD
        if number >= _OUT_OF_FORWARD:
            return ""
        found = set()
        for thread in list(self._threads.values()):
            index = bisect.bisect_right(thread.starts, number) - 1
            if index >= 0:
                found.add(thread.paths[index])
        return found.pop() if len(found) == 1 else ""
