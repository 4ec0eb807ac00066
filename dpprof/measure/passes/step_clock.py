"""Two clocks of a step: of the host, which issues operators, and of the GPU, which runs them one by one.

An operator begins when it has been issued and the one before is done. The host runs ahead, and waits only
where the program does: for a value, for a result whose size depends on data, or in `torch.cuda.synchronize`.
Each clock is kept three times, for the predicted time, the least and the most. A CPU has one clock alone.
"""

import sys
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch import nn

from dpprof.config.issue_times import IssueTimes
from dpprof.measure.passes.traffic import makes_nothing, tensors_in
from dpprof.record.ledger import PhaseTime
from dpprof.vocabulary.operator_kinds import CONVOLUTION, LIGHT, kind_of

# Factor by which a host may be slower or faster than predicted: assumed. The two hosts that were measured
# differ by 1.7, and four of five phases by up to 2.1 from what their work says (docs/results/host.md).
HOST_DOUBT = 2.0
# torch's function from which autograd calls operators by itself; in a thread of its own there is none.
_AUTOGRAD = "_engine_run_backward"
# Functions between the two: a mode's own, and torch's that keeps its compiler away.
_AROUND = {"__torch_dispatch__", "_fn"}
_INDEX = torch.ops.aten.index
_VIEW = ("view",)
_WAITS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class StepClock:
    """Predicts the times of a step's phases, from `begin` to `end`. `issue` is None on a CPU."""

    def __init__(self, issue: IssueTimes | None) -> None:
        self._issue = issue
        self._known: dict[tuple[str, ...], float] = {}  # seconds of work
        self.begin()

    def begin(self) -> None:
        """Set both clocks to zero."""
        self._host = self._device = self._began = (0.0, 0.0, 0.0)
        self._phase: str | None = None
        self._now = PhaseTime()
        self._found: dict[str | None, PhaseTime] = {None: self._now}

    def end(self) -> dict[str, PhaseTime]:
        """Return the times of all phases since `begin`."""
        self._go_to(None)
        return {phase: time for phase, time in self._found.items() if phase is not None}

    def operator(self, phase: str | None, func: Any, args: tuple[Any, ...], levels: int = 0) -> None:
        """Let the host issue an operator in a phase (None: between two), in so many transforms."""
        if self._issue is None:
            return
        work = _work_of(func)
        is_view = work == _VIEW
        if not is_view and _is_called_by_autograd():
            work += ("node",)
        work += ("level",) * levels
        listed = len(args[0]) if args and isinstance(args[0], list | tuple) else 0
        self._work(phase, work, listed)
        self._now.operators += not is_view

    def module(self, phase: str | None, module: nn.Module) -> None:
        """Let the host call a module, with its hooks."""
        if self._issue is not None:
            hooks = len(module._forward_hooks) + len(module._forward_pre_hooks)
            self._work(phase, ("module", *["hook"] * hooks))

    def transform(self, phase: str | None) -> None:
        """Let the host call a transform of `torch.func`."""
        if self._issue is not None:
            self._work(phase, ("transform",))

    def run(self, phase: str | None, seconds: float, least: float, most: float) -> None:
        """Run what the host has issued last."""
        self._go_to(phase)
        middle, early, late = self._reached()
        self._device = (middle + seconds, early + least, late + most)

    def wait(self) -> None:
        """Let the host wait for the GPU."""
        self._host = self._reached()

    def wait_for(self, func: Any, args: tuple[Any, ...]) -> None:
        """Let the host wait for the GPU if an operator's result tells it of data."""
        if _tells_of_data(func) and (func._overloadpacket is not _INDEX or _has_mask(args)):
            self.wait()

    def _work(self, phase: str | None, work: tuple[str, ...], listed: int = 0) -> None:
        """Let the host do work that `IssueTimes` names, for so many tensors in a list."""
        self._go_to(phase)
        seconds = self._known.get(work)
        if seconds is None:
            seconds = self._known[work] = sum(getattr(self._issue, name) for name in work) / 1e6
        if listed and self._issue is not None:
            seconds += listed * self._issue.listed / 1e6
        self._now.host_s += seconds
        middle, early, late = self._host
        self._host = (middle + seconds, early + seconds / HOST_DOUBT, late + seconds * HOST_DOUBT)

    def _reached(self) -> tuple[float, float, float]:
        host, device = self._host, self._device
        return max(host[0], device[0]), max(host[1], device[1]), max(host[2], device[2])

    def _go_to(self, phase: str | None) -> None:
        """Count the time since the last change of phases."""
        if phase == self._phase:
            return
        reached = self._reached()
        self._now.seconds += reached[0] - self._began[0]
        self._now.least_s += reached[1] - self._began[1]
        self._now.most_s += reached[2] - self._began[2]
        self._phase, self._began = phase, reached
        self._now = self._found.setdefault(phase, PhaseTime())


@cache
def _tells_of_data(func: Any) -> bool:
    return not _WAITS.isdisjoint(func.tags)


@cache
def _work_of(func: Any) -> tuple[str, ...]:
    """Return what the host does for an operator, as `IssueTimes` names it."""
    if makes_nothing(func):
        return _VIEW
    kind = kind_of(func._schema.name)
    weight = "light" if kind in LIGHT else "heavy"
    return (weight, "convolution") if kind.startswith(CONVOLUTION) else (weight,)


def _has_mask(args: tuple[Any, ...]) -> bool:
    """Tell whether a tensor is indexed by one of booleans, so that the result's size depends on data."""
    return any(index.dtype in (torch.bool, torch.uint8) for index in tensors_in(args[1:]))


def _is_called_by_autograd() -> bool:
    """Tell whether the dispatch mode that asks was called by autograd itself, and by no hook of Python."""
    if torch._C._current_graph_task_id() == -1:
        return False
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name in _AROUND:
        frame = frame.f_back
    return frame is None or frame.f_code.co_name == _AUTOGRAD
