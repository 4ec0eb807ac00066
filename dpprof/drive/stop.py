"""The one way to stop what is being driven."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from dpprof.process import finish_undisturbed, stopping_signals


class Stopped(Exception):
    """The user stopped what was to be done."""


class Stop:
    """Whether the user wants everything to end. A plain flag: a signal may set it at any moment, even while
    a `threading.Event` is locked.
    """

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        """Ask everything to end."""
        self.requested = True


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Make Ctrl-C and its like (`stopping_signals`) set the flag instead of raising KeyboardInterrupt.

    Nothing is left half-done: whatever runs or waits checks the flag. Further signals have no effect: under
    `mlflow run` both come, one after the other.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        stop.request()

    before = {number: signal.signal(number, handle) for number in stopping_signals()}
    try:
        yield
    finally:
        if stop.requested:
            finish_undisturbed()
        else:
            for number, handler in before.items():
                signal.signal(number, handler)
