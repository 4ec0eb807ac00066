"""Watches one forward and backward without a trainer's library, which would stop at the first problem."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._library.utils import zip_schema
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.trainers.nested import call
from dpprof.measure.workloads.workload import Batch, Workload


class Trap(NamedTuple):
    """A trainer's problem: name, sentence, module at fault. A warning does not prevent training."""

    name: str
    text: str
    module: str
    is_warning: bool = False


class Call(NamedTuple):
    """Call of a module with gradients on: shapes of positional tensors, names of keyword ones.

    `has_flat_rows`: the first tensor, as rows, can be viewed as a column. `has_channels_last`: it is an image
    that `torch.channels_last` stores. `in_backward`: by a checkpoint.
    """

    module: nn.Module
    shapes: tuple[tuple[int, ...], ...]
    keywords: tuple[str, ...]
    has_flat_rows: bool
    has_channels_last: bool
    in_backward: bool


class Change(NamedTuple):
    """Operator that changed a module's output in place: inside which module (None: in the loss), where."""

    module: nn.Module | None
    where: str


@dataclass
class WatchedStep:
    """Observations of one step. `drawing` has the innermost module (None: the loss) of each random draw.

    `random` are all modules that ran during draws.
    """

    model: nn.Module
    batch_size: int
    calls: list[Call] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    random: set[nn.Module] = field(default_factory=set)
    drawing: list[nn.Module | None] = field(default_factory=list)

    def path(self, module: nn.Module) -> str:
        """Return the dotted path of one of the model's modules."""
        return next(name for name, each in self.model.named_modules() if each is module) or "the model"


def watch_step(workload: Workload, batch: Batch, config: ExperimentConfig) -> WatchedStep:
    """Run and watch one batch; leaves gradients, and raises the errors of the model and its loss."""
    step = WatchedStep(workload.model.train(), config.batch_size)
    inputs, targets = batch
    watch = _Watch(step)
    with watch.hooked():
        with watch, torch.autocast(config.device, torch.bfloat16, enabled=config.precision == "bf16"):
            losses = workload.loss(call(workload.model, inputs), targets)
        watch.in_backward = True
        if isinstance(losses, Tensor) and losses.requires_grad:
            losses.sum().backward()
    return step


class _Watch(TorchDispatchMode):
    """Tracks the running modules, and the operators that change tensors in place or draw random numbers."""

    def __init__(self, step: WatchedStep) -> None:
        super().__init__()
        self.step = step
        self.in_backward = False
        self._running: list[nn.Module] = []
        # Kept alive, so that no other storage gets the same address.
        self._outputs: dict[int, Any] = {}

    @contextmanager
    def hooked(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module in self.step.model.modules():
                for handle in (
                    module.register_forward_pre_hook(lambda m, _: self._running.append(m), prepend=True),
                    module.register_forward_pre_hook(self._note, with_kwargs=True),
                    module.register_forward_hook(self._leave, always_call=True),
                ):
                    stack.callback(handle.remove)
            yield

    def _note(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the arguments, after the module's own hooks have changed them."""
        if not torch.is_grad_enabled():
            return
        tensors = [value for value in args if isinstance(value, Tensor)]
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        keywords = tuple(name for name, value in kwargs.items() if isinstance(value, Tensor))
        flat = not tensors or _has_flat_rows(tensors[0])
        last = bool(tensors) and has_channels_last(tensors[0])
        self.step.calls.append(Call(module, shapes, keywords, flat, last, self.in_backward))

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._running.pop()
        if any(p.requires_grad for p in module.parameters(recurse=False)):
            for tensor in tree_leaves(output):
                if isinstance(tensor, Tensor) and tensor.requires_grad:
                    storage = tensor.untyped_storage()
                    self._outputs[storage._cdata] = storage

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [*zip_schema(func._schema, args, kwargs)]
        if func._schema.is_mutable and self._changes_output(given):
            change = Change(self._running[-1] if self._running else None, _where())
            if change not in self.step.changes:
                self.step.changes.append(change)
        if draws(func, given):
            self.step.random.update(self._running)
            self.step.drawing.append(self._running[-1] if self._running else None)
        return func(*args, **kwargs)

    def _changes_output(self, given: list[Any]) -> bool:
        changed = [value for of, value in given if of.alias_info is not None and of.alias_info.is_write]
        tensors = (leaf for leaf in tree_leaves(changed) if isinstance(leaf, Tensor))
        return any(tensor.untyped_storage()._cdata in self._outputs for tensor in tensors)


def draws(func: Any, given: list[Any]) -> bool:
    """Tell if an operator draws numbers; fused attention is marked as random even without dropout.

    `given` are its arguments by `zip_schema`.
    """
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    is_attention = any(argument.name == "dropout_p" for argument in func._schema.arguments)
    return not is_attention or any(value for of, value in given if of.name == "dropout_p")


def has_channels_last(tensor: Tensor) -> bool:
    """Tell whether a tensor (B, channels, height, width) is stored with its channels last, and only so."""
    is_image = tensor.dim() == 4 and not tensor.is_contiguous()
    return is_image and tensor.is_contiguous(memory_format=torch.channels_last)


def _has_flat_rows(tensor: Tensor) -> bool:
    if tensor.dim() == 0:
        return True
    try:
        tensor.detach().reshape(tensor.shape[0], -1).view(-1, 1)
    except (RuntimeError, ValueError):  # the latter on fake tensors
        return False
    return True


def _where() -> str:
    """Return the innermost line outside torch and this file."""
    for frame, line in traceback.walk_stack(sys._getframe()):
        name = frame.f_globals.get("__name__", "")
        if name != __name__ and name.partition(".")[0] != "torch":
            return f"{Path(frame.f_code.co_filename).name}, line {line}"
    return "unknown"
