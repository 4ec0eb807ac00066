"""The stop flag, and the signals that set it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from dpprof.process import finish_undisturbed, stopping_signals


class Stopped(Exception):
    """The user stopped everything."""


class Stop:
    """Request to stop. A plain flag: a signal may set it even while a `threading.Event` is locked."""

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        """Ask everything to stop."""
        self.requested = True


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Make Ctrl-C and other stopping signals set the flag instead of raising KeyboardInterrupt.

    Further signals have no effect: under `mlflow run` two come in a row.
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
