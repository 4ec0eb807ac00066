"""How a measuring process ended."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from dpprof.record.folder import RunFolder


@dataclass(frozen=True)
class Exit:
    """`code` is the exit code, or minus the signal. `oom_killed` tells that the kernel ran out of memory
    meanwhile and killed something; `peak_rss` is the last figure seen, in bytes."""

    code: int
    timed_out: bool = False
    interrupted: bool = False
    oom_killed: bool = False
    peak_rss: int | None = None


class Launch(Protocol):
    """Runs the measuring process of a run folder to its end."""

    def __call__(
        self, folder: RunFolder, timeout_s: float, on_line: Callable[[str], None], stop: Event
    ) -> Exit:
        """`on_line` gets each line that the process says of its progress; `stop`, once set, ends it."""
