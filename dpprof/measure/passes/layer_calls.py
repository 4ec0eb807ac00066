"""Notes the layers of a step that multiply matrices: what the FLOPs in theory follow from."""

from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from dpprof.record.layers import LayerRow
from dpprof.vocabulary.norm_forms import NormCost

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class LayerCalls:
    """Follows the calls of linear layers and convolutions while it is entered."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._weights: dict[int, str] = {}
        self._rows: dict[str, list[LayerRow]] = {}
        self.in_forward = False

    def __enter__(self) -> Self:
        self._handle = register_module_forward_hook(self._called)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.remove()

    def start_step(self, model: nn.Module) -> None:
        """Forget what was called before."""
        self._names = {id(module): path for path, module in model.named_modules()}
        self._weights = {id(parameter): path for path, parameter in model.named_parameters()}
        self._rows = {}

    def rows(self, costs: dict[str, NormCost]) -> list[LayerRow]:
        """The calls since, in order, with what the trainer says its norms cost, by parameter."""
        found = [row for rows in self._rows.values() for row in rows]
        left = dict(costs)
        for row in found:
            row.is_booked = row.weight in costs and costs[row.weight].is_booked
            cost = left.pop(row.weight, None)  # that of all calls together
            if cost is not None:
                row.norm, row.norm_bytes = cost.form or None, cost.num_bytes
                row.norm_flops, row.sum_flops = cost.flops, cost.sum_flops
        return found

    def _called(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        with torch._C.DisableTorchFunctionSubclass():  # expanded weights refuse to be looked at
            self._note(module, args, output)

    def _note(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not args or not isinstance(args[0], Tensor) or not isinstance(output, Tensor):
            return
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":
            groups, rows, columns = 1, output.shape[-1], args[0].shape[-1]
            positions = args[0].shape[1:-1].numel()
        elif isinstance(module, _CONVOLUTIONS):
            groups, rows = module.groups, output.shape[1] // module.groups
            columns, positions = module.weight.shape[1:].numel(), output.shape[2:].numel()
        else:
            return
        name = self._names.get(id(module), "")
        if not self.in_forward:  # a checkpoint computes it again
            for row in self._rows.get(name, ()):
                row.is_recomputed = True
                row.input_has_gradient = args[0].requires_grad  # a reentrant one runs forward without
            return
        row = LayerRow(name, args[0].shape[0], groups, positions, rows, columns)
        row.element_size = output.element_size()
        row.weight = self._weights.get(id(module.weight), f"{name}.weight")
        weight, bias = module.weight, module.bias
        row.weight_trains = isinstance(weight, Tensor) and weight.requires_grad
        row.bias_trains = isinstance(bias, Tensor) and bias.requires_grad
        row.input_has_gradient = args[0].requires_grad
        self._rows.setdefault(name, []).append(row)
