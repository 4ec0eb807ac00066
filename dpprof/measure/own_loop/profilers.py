"""Knows of profilers of torch's that a loop runs itself: there is one in a process at a time."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from weakref import WeakSet

from torch._C._autograd import _profiler_enabled as profiler_enabled
from torch.autograd.profiler import profile

from dpprof.errors import DpprofError
from dpprof.measure.guard import Guard
from dpprof.measure.own_loop.marks import wrapped
from dpprof.measure.own_loop.quiet import apart

PROFILED = "the loop runs a profiler of torch's itself, and there is one in a process"


class Profilers:
    """Follows a loop's profilers from their preparation, in a schedule's warm-up, to their end.

    What those of dpprof's tell on standard error is left out.

    Args:
        is_own: tells if a profiler that is prepared now is dpprof's.
        begins: called before another one is prepared, which would end one of dpprof's.
        guard: has what fails.
    """

    def __init__(self, is_own: Callable[[], bool], begins: Callable[[], None], guard: Guard) -> None:
        self._is_own, self._begins, self._guard = is_own, begins, guard
        self._others: WeakSet[profile] = WeakSet()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow those that begin inside."""
        with ExitStack() as stack:
            around_each = {
                "_prepare_trace": self._prepare,
                "_start_trace": self._start,
                "__exit__": self._end,
            }
            for name, around in around_each.items():
                if name in vars(profile):
                    stack.enter_context(wrapped(profile, name, self._guard.around(around)))
            yield

    def refuse(self) -> None:
        """Raise DpprofError if the loop has one."""
        if self._others or profiler_enabled():
            raise DpprofError(PROFILED)

    def _prepare(self, prepare: Callable[..., Any], profiler: profile) -> Any:
        if self._is_own():
            return self._start(prepare, profiler)
        self._others.add(profiler)
        self._begins()
        return prepare(profiler)

    def _start(self, start: Callable[..., Any], profiler: profile) -> Any:
        with apart() if self._is_own() else nullcontext():
            return start(profiler)

    def _end(self, end: Callable[..., Any], profiler: profile, *error: Any) -> Any:
        self._others.discard(profiler)
        with apart() if self._is_own() else nullcontext():
            return end(profiler, *error)
