"""What the measuring process says of its own accord.

A workload may close or replace `sys.stdout` and `sys.stderr`, or close descriptors 1 and 2. That harms no
experiment: the process keeps copies, and what it cannot say it leaves unsaid.
"""

import os
import sys
from contextlib import suppress

from dpprof.vocabulary.log_lines import SAID

_OUTPUT, _ERRORS = 1, 2
_copies: dict[int, int] = {}


def keep_descriptors() -> None:
    """Copy the descriptors of the output, before a workload is imported. Not where others write there too."""
    for descriptor in (_OUTPUT, _ERRORS):
        with suppress(OSError):  # closed from the start
            _copies[descriptor] = os.dup(descriptor)


def say(message: str) -> None:
    """Tell whoever follows the log."""
    _write(_OUTPUT, f"{SAID}{message}\n")


def show(text: str) -> None:
    """Put an error's text into the log."""
    _write(_ERRORS, f"{text}\n")


def _write(descriptor: int, text: str) -> None:
    with suppress(Exception):
        if descriptor not in _copies:
            print(text, end="", file=sys.stdout if descriptor == _OUTPUT else sys.stderr, flush=True)
            return
        with open(_copies[descriptor], "wb", closefd=False) as output:
            output.write(text.encode(errors="backslashreplace"))
