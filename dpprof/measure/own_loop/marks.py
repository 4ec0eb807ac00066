"""Finds the phases of a training loop that knows nothing of dpprof.

Forward begins with the outermost module that is called, and lasts until backward begins, so that the loss is
part of it; without gradients it ends with the module. The others are calls of torch's and, where it is
imported, Opacus's functions, and the ranges that Opake records. A phase inside another one belongs to that
one; the closure that an optimizer's `step` calls does not belong to `optimizer_step`.
"""

import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch.compiler import disable
from torch.nn.modules.module import (
    _global_forward_hooks_with_kwargs,
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.profiler import record_function
from torch.utils._pytree import tree_leaves

from dpprof.measure.guard import Guard
from dpprof.measure.observe import Observer
from dpprof.measure.own_loop.followed import Followed
from dpprof.vocabulary.phases import label_of

# Methods of Opacus's optimizers, and their phases.
_OF_OPACUS = {
    "clip_and_accumulate": "clip",
    "accumulate": "clip",
    "add_noise": "noise",
    "zero_grad": "zero_grad",
}
# Ranges that Opake records: of forward, backward and clipping together, and of the noise.
_OPAKE_CLIPPED, _OPAKE_NOISE = "opake::clipped_grad", "opake::gaussian_noise"
# torch's warning for hooks of all modules; these do nothing where code is compiled.
_OF_COMPILED = r"Using `torch\.compile\(module\)` when there are global hooks"


class Marks:
    """Marks the phases of whatever runs while it is installed.

    Tells the `observer` of them, and `followed` of models and optimizers. Calls `stepped` when an optimizer's
    `step` returns, with None for a step without one, and `thread_ends` from inside the loop's thread.
    Whatever fails here is the `guard`'s.
    """

    def __init__(
        self,
        followed: Followed,
        stepped: Callable[[Optimizer | None], None],
        thread_ends: Callable[[], None],
        guard: Guard,
    ) -> None:
        self._followed, self._stepped, self._thread_ends = followed, stepped, thread_ends
        self._guard = guard
        self.observer = Observer()
        self.labels_ranges = False  # for the profiler
        self.batch_size, self.is_short = 0, False
        # Of the step so far; whether a forward that can train has shown none yet.
        self._samples, self._awaits_samples = 0, False
        self._phase, self._within_phase = "", ExitStack()
        self._installed = ExitStack()
        self._depth = 0
        self._knows_opacus = False
        # The phase that lasts until another one begins.
        self._open = ""
        self._in_step = False
        # Phases of the calls of backward to come, within one of Opacus's fast gradient clipping.
        self._backwards: list[str] = []
        # Within Opake's clipped gradient, and after its noise.
        self._is_clipped = self._has_noise = False
        # The process and the thread of the loop, once a step has told it, and the optimizer steps in others.
        self._process = os.getpid()
        self._thread: int | None = None
        self.steps_elsewhere = 0

    def is_outside_loop(self) -> bool:
        """Tell if the caller is being compiled, or runs in another thread or process than the loop."""
        if torch.compiler.is_compiling():
            return True
        return self._process != os.getpid() or self._thread not in (None, threading.get_ident())

    def _here(
        self, hook: Callable[..., Any], instead: Callable[..., Any] | None = None
    ) -> Callable[..., Any]:
        """Leave a hook out outside of the loop; between compiled parts, run it uncompiled."""
        hook = disable(self._guard.hook(hook, instead))
        return lambda *args, **kwargs: None if self.is_outside_loop() else hook(*args, **kwargs)

    def install(self) -> None:
        """Put hooks and wrappers in place."""
        keep = self._installed
        warnings.filterwarnings("ignore", _OF_COMPILED)
        keep.callback(_without, warnings.filters[0])
        before_step = disable(self._guard.hook(self._before_step))
        leave_module = self._here(self._leave_module)
        leaving = register_module_forward_hook(leave_module, with_kwargs=True, always_call=True)
        keep.callback(_global_forward_hooks_with_kwargs.pop, leaving.id, None)  # its handle leaves this
        for handle in (
            leaving,
            register_module_forward_pre_hook(self._here(self._enter_module)),
            register_optimizer_step_pre_hook(partial(self._before_any_step, before_step)),
            # The step ends, whatever fails: so does a pass that failed.
            register_optimizer_step_post_hook(self._here(self._after_step, self._end_step_of)),
        ):
            keep.enter_context(handle)
        for name in ("backward", "grad"):
            self._wrap(torch.autograd, name, self._backward)
        for name, around in (("__enter__", self._enter_range), ("__exit__", self._leave_range)):
            self._wrap(record_function, name, around)
        for owner in (nn.Module, Optimizer):
            self._wrap(owner, "zero_grad", self._in("zero_grad"))
        self._wrap(threading.Thread, "_bootstrap_inner", self._in_thread)
        self._look_for_opacus()

    def keep(self, context: AbstractContextManager[None]) -> None:
        """Enter a context, and leave it with everything else."""
        self._installed.enter_context(context)

    def _in_thread(self, run: Callable[..., Any], *args: Any) -> None:
        try:
            run(*args)
        finally:
            if self._thread == threading.get_ident():
                self._thread_ends()

    def _look_for_opacus(self) -> None:
        """Wrap Opacus's functions once they are imported."""
        optimizers = sys.modules.get("opacus.optimizers")
        utils = sys.modules.get("opacus.utils.fast_gradient_clipping_utils")
        if self._knows_opacus or optimizers is None or utils is None:
            return
        self._knows_opacus = True
        for kind in _kinds_of(optimizers.DPOptimizer):
            for method in _OF_OPACUS.keys() & vars(kind).keys():
                self._wrap(kind, method, self._in(_OF_OPACUS[method]))
        loss = utils.DPTensorFastGradientClipping
        self._wrap(loss, "backward", self._two_backwards)

    def _wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Call a function through `around`, but where the caller is apart."""
        guarded = self._guard.around(around)

        def here(original: Any, *args: Any, **kwargs: Any) -> Any:
            return original(*args, **kwargs) if self.is_outside_loop() else guarded(original, *args, **kwargs)

        self._installed.enter_context(wrapped(owner, name, here))

    def remove(self) -> None:
        """Leave torch and Opacus as they were, and the observer alone."""
        self._installed.close()
        self.observer, self.labels_ranges = Observer(), False

    def end_step(self) -> int:
        """End what the step has left open, and return the number of its samples."""
        self._close()
        self.end_phase(self._phase)
        self._depth, self._backwards = 0, []
        self._in_step = self._is_clipped = self._has_noise = False
        self._look_for_opacus()
        samples, self._samples = self._samples, 0
        return samples

    @contextmanager
    def _phase_of(self, name: str) -> Iterator[None]:
        begun = self.begin_phase(name)
        try:
            yield
        finally:
            if begun:
                self.end_phase(name)

    def begin_phase(self, name: str) -> bool:
        """Begin a phase, which ends one that nothing else has ended; False within another one."""
        self._close()
        return self._begin(name)

    def end_phase(self, phase: str) -> None:
        """End the phase under way."""
        if phase and self._phase == phase:
            self._within_phase.close()
            self._phase = ""

    def _begin(self, phase: str) -> bool:
        """Begin a phase unless another one is under way."""
        if self._phase:
            return False
        self._phase = phase
        if phase == "forward":
            self._awaits_samples = torch.is_grad_enabled()
            self.is_short |= torch.is_autocast_enabled("cpu")
        self._within_phase.enter_context(self.observer.phase(phase))
        if self.labels_ranges:
            self._within_phase.enter_context(record_function(label_of(phase)))
        if phase == "noise":
            self._within_phase.enter_context(self.observer.label_new("noise"))
        return True

    def _close(self) -> None:
        if self._open:
            self.end_phase(self._open)
            self._open = ""

    def _leave_open(self, name: str) -> None:
        if self._begin(name):
            self._open = name

    def _enter_module(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._depth += 1
        if self._depth == 1:
            self._followed.see_model(module)
            if self._open != "forward":
                self._close()
                self._leave_open("forward")

    def _see_inputs(self, inputs: object) -> None:
        """Learn the arguments of a model, and from the first tensor the batch size."""
        tensors = _tensors(inputs)
        samples = next((len(tensor) for tensor in tensors if tensor.dim()), 0)
        if samples and self._awaits_samples:
            self._samples, self._awaits_samples = self._samples + samples, False
            self.batch_size = self.batch_size or samples
        self.observer.label("inputs", [("", tensor) for tensor in tensors])

    def _leave_module(self, module: nn.Module, args: object, kwargs: object, output: object = None) -> None:
        """Leave a module. Without `output`, as torch calls it, forward raised, and `kwargs` is nothing."""
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and self._open == "forward":
            self._see_inputs((args, kwargs))  # only now, as keyword arguments are not told before
            # The loop may keep it.
            self.observer.label("outputs", [("", tensor) for tensor in _tensors(output)])
            if not torch.is_grad_enabled():
                self._close()

    def _before_any_step(self, before_step: Callable[..., Any], *args: Any) -> Any:
        if torch.compiler.is_compiling():
            return None
        if self.is_outside_loop():
            self.steps_elsewhere += 1
            return None
        return before_step(*args)

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._thread = threading.get_ident()
        self._close()
        self._followed.see_optimizer(optimizer)
        self._in_step = self._begin("optimizer_step")
        # Lightning's closure is no plain function.
        wrapped = [self._suspending(arg) if callable(arg) else arg for arg in (*args[1:], *kwargs.values())]
        given = len(args) - 1
        return (optimizer, *wrapped[:given]), dict(zip(kwargs, wrapped[given:], strict=True))

    def _suspending(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """Suspend the phase `optimizer_step` while the optimizer's closure runs."""

        def interrupting(closure: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self.end_phase("optimizer_step")
            try:
                return closure(*args, **kwargs)
            finally:
                self._close()
                self._in_step = self._begin("optimizer_step")

        return functools.wraps(closure)(partial(self._guard.around(interrupting), closure))

    def _after_step(self, optimizer: Optimizer, *_: object) -> None:
        if self._in_step:
            self._in_step = False
            self.end_phase("optimizer_step")
            self._stepped(optimizer)

    def _end_step_of(self, optimizer: Optimizer, *_: object) -> None:
        self._stepped(optimizer)

    def _in(self, phase: str) -> Callable[..., Any]:
        def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            with nullcontext() if self._backwards else self._phase_of(phase):
                return function(*args, **kwargs)

        return called

    def _backward(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._phase_of(self._backwards.pop(0) if self._backwards else "backward"):
            result = function(*args, **kwargs)
        if self._backwards or self._is_clipped:
            self._leave_open("clip")  # factors from norms, between the two; or Opake's clipping
        return result

    def _two_backwards(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._backwards = ["backward_norms", "backward_weighted"]
        try:
            return function(*args, **kwargs)
        finally:
            self._backwards = []

    def _enter_range(self, enter: Callable[..., Any], entered: record_function) -> Any:
        if entered.name == _OPAKE_CLIPPED:
            if self._has_noise:
                self._stepped(None)
            self._is_clipped = True
        elif entered.name == _OPAKE_NOISE:
            self._close()
            self._begin("noise")
        return enter(entered)

    def _leave_range(self, leave: Callable[..., Any], left: record_function, *error: Any) -> Any:
        try:
            return leave(left, *error)
        finally:
            if left.name == _OPAKE_CLIPPED:
                self._is_clipped = False
                self._close()
            elif left.name == _OPAKE_NOISE:
                self.end_phase("noise")
                self._has_noise = True


def _without(entry: Any) -> None:
    with suppress(ValueError):  # the loop has set others
        warnings.filters.remove(entry)  # type: ignore[attr-defined]


def _kinds_of(kind: type) -> list[type]:
    subclasses: list[type] = kind.__subclasses__()
    return [kind, *(found for subclass in subclasses for found in _kinds_of(subclass))]


def wrapped(owner: Any, name: str, around: Callable[..., Any]) -> AbstractContextManager[Any]:
    """Let `around` be called in place of a function, with the original and the arguments."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    return patch.object(owner, name, wrapper)


def _tensors(tree: object) -> list[Tensor]:
    return [_unwrapped(leaf) for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _unwrapped(tensor: Tensor) -> Tensor:
    """Return the tensor with all samples, under `vmap`."""
    is_wrapped = functorch.is_functorch_wrapped_tensor(tensor)
    return _unwrapped(functorch.get_unwrapped(tensor)) if is_wrapped else tensor
