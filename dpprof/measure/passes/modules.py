"""Follows module calls: the module that each operator works for, and the sizes of the layers' products.

Forward: global module hooks keep a stack of the modules being called. Backward: autograd gives every node a
sequence number when it creates it, so the running node leads back to its place in forward.
"""

import bisect
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from threading import get_ident
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch._C._autograd import _get_sequence_nr as get_sequence_nr
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from dpprof.measure.guard import Guard
from dpprof.measure.passes.traffic import tensors_in
from dpprof.vocabulary.norm_forms import NormCost
from dpprof.vocabulary.theory import LayerRow

_OUT_OF_FORWARD = 2**63  # AccumulateGrad has the largest number there is
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class _Thread:
    """Modules being called in one thread, and the sequence number at which each became the innermost.

    `multiplied` is the innermost one if it has computed a product.
    """

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.around = ExitStack()
        self.starts: list[int] = []
        self.paths: list[str] = []
        self.multiplied = ""

    def note(self, start: int) -> None:
        while self.starts and self.starts[-1] >= start:
            self.starts.pop()
            self.paths.pop()
        self.starts.append(start)
        self.paths.append(self.stack[-1] if self.stack else "")


class ModuleCalls:
    """Follows module calls while entered. `around()` makes the context of each outermost call.

    `called(module)` runs at each call. `in_forward` tells if the calls are those of forward: others are a
    checkpoint's.
    """

    def __init__(
        self,
        around: Callable[[], AbstractContextManager[None]],
        guard: Guard | None = None,
        called: Callable[[nn.Module], None] = lambda module: None,
    ) -> None:
        self._around, self._guard, self._called = around, guard or Guard(), called
        self._names: dict[int, str] = {}
        self._threads: defaultdict[int, _Thread] = defaultdict(_Thread)
        self._hooks = ExitStack()
        self._weights: dict[int, str] = {}
        self._rows: dict[str, list[LayerRow]] = {}
        self.in_forward = False

    def __enter__(self) -> Self:
        before, after = self._guard.hook(self._enter_module), self._guard.hook(self._leave_module)
        self._hooks.enter_context(register_module_forward_pre_hook(before))
        self._hooks.enter_context(register_module_forward_hook(after, always_call=True))
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()

    def name(self, model: nn.Module) -> None:
        """Learn the paths of a model's modules and parameters, and forget earlier calls."""
        self._names = {id(module): path for path, module in model.named_modules()}
        self._weights = {id(parameter): path for path, parameter in model.named_parameters()}
        self._rows = {}
        self._threads.clear()

    def _enter_module(self, module: nn.Module, args: object) -> None:
        if torch.compiler.is_compiling():  # hooks are no part of what is compiled
            return
        self._called(module)
        thread = self._threads[get_ident()]
        if not thread.stack:
            thread.around.enter_context(self._around())
        thread.multiplied = ""
        thread.stack.append(self._names.get(id(module), thread.stack[-1] if thread.stack else ""))
        thread.note(get_sequence_nr())

    def _leave_module(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        with torch._C.DisableTorchFunctionSubclass():  # expanded weights refuse inspection
            self._note_layer(module, args, output)
        thread = self._threads[get_ident()]
        if thread.stack:
            thread.stack.pop()
        if not thread.stack:
            thread.around.close()
        # A module with backward hooks makes one more node, for its output, after these hooks.
        hooked = bool(module._backward_hooks or module._backward_pre_hooks) and torch.is_grad_enabled()
        made_after = int(hooked and any(t.requires_grad for t in tensors_in((output,))))
        thread.note(get_sequence_nr() + made_after)

    def current(self) -> str:
        """Return the path of the module that the running operator works for; empty if it is unknown.

        Sequence numbers are ambiguous if forward runs in several threads (a recomputation in autograd's).
        """
        stack = self._threads[get_ident()].stack
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

    def note_product(self) -> None:
        """Note that the running operator is a matrix product."""
        thread = self._threads[get_ident()]
        thread.multiplied = thread.stack[-1] if thread.stack else ""

    def rows(self, costs: dict[str, NormCost]) -> list[LayerRow]:
        """Return the calls of linear layers and convolutions, with the norm costs given by parameter."""
        found = [row for rows in self._rows.values() for row in rows]
        left = dict(costs)
        for row in found:
            row.is_booked = row.weight in costs and costs[row.weight].is_booked
            cost = left.pop(row.weight, None)  # of all calls together
            if cost is not None:
                row.norm, row.norm_bytes = cost.form or None, cost.num_bytes
                row.norm_flops, row.sum_flops = cost.flops, cost.sum_flops
        return found

    def _note_layer(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not args or not isinstance(args[0], Tensor):
            return
        name = self._names.get(id(module), "")
        if not self.in_forward:  # a checkpoint computes it again
            # It stops once backward has what it needs: before a product of torch's layers, after a rule's.
            was_computed = isinstance(output, Tensor) or self._threads[get_ident()].multiplied == name
            for row in self._rows.get(name, ()) if was_computed else ():
                row.is_recomputed = True
                row.input_has_gradient = args[0].requires_grad  # reentrant: forward had none
            return
        if not isinstance(output, Tensor):
            return
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":
            groups, rows, columns = 1, output.shape[-1], args[0].shape[-1]
            positions = args[0].shape[1:-1].numel()
        elif isinstance(module, _CONVOLUTIONS):
            groups, rows = module.groups, output.shape[1] // module.groups
            columns, positions = module.weight.shape[1:].numel(), output.shape[2:].numel()
        else:
            return
        row = LayerRow(name, args[0].shape[0], groups, positions, rows, columns)
        row.is_convolution = isinstance(module, _CONVOLUTIONS)
        row.element_size = output.element_size()
        row.weight = self._weights.get(id(module.weight), f"{name}.weight")
        weight, bias = module.weight, module.bias
        row.weight_trains = isinstance(weight, Tensor) and weight.requires_grad
        row.bias_trains = isinstance(bias, Tensor) and bias.requires_grad
        row.input_has_gradient = args[0].requires_grad
        self._rows.setdefault(name, []).append(row)
