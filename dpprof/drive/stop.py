"""The one way to stop what is being driven."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from dpprof.process import finish_undisturbed


class Stopped(Exception):
    """The user stopped what was to be done."""


class Stop:
    """Whether the user wants everything to end. A plain flag: a signal may set it in the midst of anything,
    when a `threading.Event` could be locked.
    """

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        """Have everything end."""
        self.requested = True


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM set the flag in place of raising KeyboardInterrupt.

    So nothing is left half-done: whoever runs or waits looks at the flag. More signals change nothing: under
    `mlflow run` both come, one after the other.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        stop.request()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if stop.requested:
            finish_undisturbed()
        else:
            for number, handler in before.items():
                signal.signal(number, handler)
