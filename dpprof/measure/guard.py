"""Keeps the errors of a measurement out of what is measured.

A loop that is not dpprof's calls dpprof's hooks, and functions that dpprof has put others around. What fails
in them is noted, and they stand still until the pass is over; the loop goes on as without them.
"""

import functools
from collections.abc import Callable
from typing import Any

from dpprof.errors import describe_error


class Guard:
    """Lets every error through: dpprof's own steps end with it."""

    error: str | None = None

    def hook(self, hook: Callable[..., Any], instead: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Return what to register in place of a hook."""
        return hook

    def around(self, around: Callable[..., Any]) -> Callable[..., Any]:
        """Return what to call in place of `around`, which gets a function and the arguments of its call."""
        return around


class LoopGuard(Guard):
    """Keeps the first error's text in `error`, and calls nothing of dpprof's while it has one.

    The error itself would keep what the loop's functions hold.
    """

    def hook(self, hook: Callable[..., Any], instead: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Return a hook that calls `instead` where this one fails; else None, which changes nothing."""

        @functools.wraps(hook)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self.error is None:
                try:
                    return self.own(hook, *args, **kwargs)
                except Exception as error:
                    self._note(error)
            return instead(*args, **kwargs) if instead is not None else None

        return guarded

    def around(self, around: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls the original by itself where `around` fails before it.

        What the original returned or raised stays, whatever fails after it.
        """

        @functools.wraps(around)
        def guarded(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if self.error is not None:
                return original(*args, **kwargs)
            call = _Call(original)
            try:
                return self.own(around, call, *args, **kwargs)
            except Exception as error:
                if error is call.error:
                    call.error = None  # which holds this frame
                    raise
                self._note(error)
            return call.outcome() if call.is_over else original(*args, **kwargs)

        return guarded

    def own(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what is dpprof's."""
        return function(*args, **kwargs)

    def _note(self, error: Exception) -> None:
        self.error = self.error or describe_error(error)


class _Call:
    """A call of a function, and how it ended."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._result: Any = None
        self.error: Exception | None = None
        self.is_over = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            self._result = self._function(*args, **kwargs)
        except Exception as error:
            self.error = error
            raise
        finally:
            self.is_over = True
        return self._result

    def outcome(self) -> Any:
        """Return what the function returned, or raise what it raised."""
        error, self.error = self.error, None
        if error is not None:
            raise error
        return self._result
