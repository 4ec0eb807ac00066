"""Two clocks of a step: of the host, which issues operators, and of the GPU, which runs them one by one.

An operator begins when it has been issued and the one before is done. The host runs ahead, and waits only
where the program does: for a value, for a result whose size depends on data, or in `torch.cuda.synchronize`.
Each clock is kept three times, for the predicted time, the least and the most. A CPU has one clock alone.
"""

import sys
from collections import defaultdict
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
_FACTORS = (1.0, 1 / HOST_DOUBT, HOST_DOUBT)
# torch's function from which autograd calls operators by itself; in a thread of its own there is none.
_AUTOGRAD = "_engine_run_backward"
# Functions between the two: a mode's own, and torch's that keeps its compiler away.
_AROUND = {"__torch_dispatch__", "_fn"}
_INDEX = torch.ops.aten.index
_WAITS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class StepClock:
    """Predicts the times of a step's phases, from `begin` to `end`. `issue` is None on a CPU."""

    def __init__(self, issue: IssueTimes | None) -> None:
        self._issue = issue
        self.begin()

    def begin(self) -> None:
        """Set both clocks to zero."""
        self._host, self._device, self._began = [0.0] * 3, [0.0] * 3, [0.0] * 3
        self._phase: str | None = None
        self._found: defaultdict[str | None, PhaseTime] = defaultdict(PhaseTime)

    def end(self) -> dict[str, PhaseTime]:
        """Return the times of all phases since `begin`."""
        self._go_to(None)
        return {phase: time for phase, time in self._found.items() if phase is not None}

    def operator(self, phase: str | None, func: Any, args: tuple[Any, ...]) -> None:
        """Let the host issue an operator in a phase (None: between two)."""
        if self._issue is None:
            return
        counts = dict.fromkeys(_work_of(func), 1)
        if args and isinstance(args[0], list | tuple):
            counts["listed"] = len(args[0])
        if _is_called_by_autograd():
            counts["node"] = 1
        self._work(phase, **counts)
        self._found[phase].operators += "view" not in counts

    def module(self, phase: str | None, module: nn.Module) -> None:
        """Let the host call a module, with its hooks."""
        if self._issue is not None:
            hooks = len(module._forward_hooks) + len(module._forward_pre_hooks)
            self._work(phase, module=1, hook=hooks)

    def run(self, phase: str | None, seconds: float, least: float, most: float) -> None:
        """Run what the host has issued last."""
        self._go_to(phase)
        times = (seconds, least, most)
        self._device = [end + time for end, time in zip(self._reached(), times, strict=True)]

    def wait(self) -> None:
        """Let the host wait for the GPU."""
        self._host = self._reached()

    def wait_for(self, func: Any, args: tuple[Any, ...]) -> None:
        """Let the host wait for the GPU if an operator's result tells it of data."""
        if not _WAITS.isdisjoint(func.tags) and (func._overloadpacket is not _INDEX or _has_mask(args)):
            self.wait()

    def _work(self, phase: str | None, **counts: int) -> None:
        """Let the host work: so many times of each kind in `IssueTimes`."""
        self._go_to(phase)
        seconds = sum(number * getattr(self._issue, name) for name, number in counts.items()) / 1e6
        self._found[phase].host_s += seconds
        pairs = zip(self._host, _FACTORS, strict=True)
        self._host = [now + seconds * factor for now, factor in pairs]

    def _reached(self) -> list[float]:
        return [max(pair) for pair in zip(self._host, self._device, strict=True)]

    def _go_to(self, phase: str | None) -> None:
        """Count the time since the last change of phases."""
        if phase == self._phase:
            return
        reached = self._reached()
        if self._phase is not None:
            found = self._found[self._phase]
            found.seconds += reached[0] - self._began[0]
            found.least_s += reached[1] - self._began[1]
            found.most_s += reached[2] - self._began[2]
        self._phase, self._began = phase, reached


@cache
def _work_of(func: Any) -> tuple[str, ...]:
    """Return what the host does for an operator, as `IssueTimes` names it."""
    if makes_nothing(func):
        return ("view",)
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
