"""Leaves the forks of a loop alone: what is measured is their parent's."""

import ctypes
import os
from collections.abc import Callable
from typing import Any
from weakref import WeakMethod


def tell_forks(leave: Callable[[], None]) -> None:
    """Call a method first in every fork of this process, as long as its object lives."""
    found = WeakMethod(leave)

    def forked() -> None:
        if (method := found()) is not None:
            method()

    os.register_at_fork(after_in_child=forked)


def keep_for_good(thing: Any) -> None:
    """Let an object live to the end of the process, which then does not end what the object has begun."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def exit_without_threads() -> None:
    """Let this fork exit although torch's profiler has been used before it.

    The profiler's thread is the parent's. At exit, libkineto destroys what it waits for, and so waits for it
    for ever. The C library calls these functions before that, in reverse order.
    """
    library = ctypes.CDLL(None)
    on_exit = getattr(library, "on_exit", None)  # glibc's
    if on_exit is not None:
        on_exit(library._exit, None)
        on_exit(library.fcloseall, None)
