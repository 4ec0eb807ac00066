"""Keeps lines of torch's profiler from a loop's standard error, which does not have them without dpprof."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

import torch
from torch._C._autograd import _profiler_enabled as profiler_enabled

_EVERY = 1000
_LINES = (
    b"Memory block of unknown size",
    b"External init callback must run in same thread",
    b"profiler_start",
    b"profiler_stop",
)
_STDERR = 2


class Quiet:
    """Keeps torch's CPU allocator from telling which blocks it cannot tell of.

    While memory is recorded, it says of the first of each thousand blocks older than the recording that it
    frees them. Blocks that nobody needs are freed until it does, while standard error is a file. There are
    some for so many starts, each before less than a thousand older blocks.
    """

    def __init__(self, num_starts: int) -> None:
        self._blocks = [torch.UntypedStorage(1) for _ in range(num_starts * _EVERY)]

    def start(self) -> None:
        """Let the line come now, if memory is recorded."""
        if profiler_enabled():
            with apart() as file:
                for _ in range(min(_EVERY, len(self._blocks))):
                    self._blocks.pop()
                    if file is None or os.fstat(file.fileno()).st_size:
                        break


@contextmanager
def apart() -> Iterator[IO[bytes] | None]:
    """Let standard error be a file, what is in it but these lines follows; None if it cannot be."""
    with ExitStack() as stack:
        file = None
        with suppress(OSError, ValueError):  # no room, or a stream that the loop has closed
            if sys.stderr is not None:
                sys.stderr.flush()
            file = stack.enter_context(tempfile.TemporaryFile())
            stack.callback(_follow, file)
            kept = os.dup(_STDERR)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, _STDERR)
            os.dup2(file.fileno(), _STDERR)
        yield file


def _follow(file: IO[bytes]) -> None:
    file.seek(0)
    others = b"".join(line for line in file if not any(known in line for known in _LINES))
    if others:
        os.write(_STDERR, others)
