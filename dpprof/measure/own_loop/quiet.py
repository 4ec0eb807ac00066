"""Keeps a line of torch's from a loop's standard error, which does not have it without dpprof.

While memory is recorded, torch's CPU allocator says of the first of each thousand blocks older than the
recording that it frees: "Memory block of unknown size was allocated before the profiling started". Blocks
that nobody else needs are freed until it does, while standard error is a file.
"""

import os
import sys
import tempfile
from contextlib import suppress

import torch

_EVERY = 1000
_LINE = b"Memory block of unknown size"
_STDERR = 2


class Quiet:
    """Has blocks for so many starts, each before less than a thousand older blocks that are freed."""

    def __init__(self, num_starts: int) -> None:
        self._blocks = [torch.UntypedStorage(1) for _ in range(num_starts * _EVERY)]

    def start(self) -> None:
        """Let the line come now, if memory is recorded."""
        if torch.autograd._profiler_enabled():
            with suppress(OSError):
                self._provoke()

    def _provoke(self) -> None:
        with tempfile.TemporaryFile() as file:
            if sys.stderr is not None and not sys.stderr.closed:
                sys.stderr.flush()
            kept = os.dup(_STDERR)
            try:
                os.dup2(file.fileno(), _STDERR)
                for _ in range(min(_EVERY, len(self._blocks))):
                    self._blocks.pop()
                    if os.fstat(file.fileno()).st_size:
                        break
            finally:
                os.dup2(kept, _STDERR)
                os.close(kept)
            file.seek(0)
            others = b"".join(line for line in file if _LINE not in line)  # of other threads
            if others:
                os.write(_STDERR, others)
