"""Finds the line of the loop that is being run: outside of libraries, and of models' forward."""

import functools
import sys
import sysconfig
from pathlib import Path
from types import FrameType

from dpprof.measure.stacks import folder_of

_STANDARD = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
_CALLS_MODULE = "_call_impl"  # of torch.nn.Module


def line_now() -> str:
    """Return the file and line of the loop that runs now, `train.py:12`; empty outside of it.

    A cell of a notebook has no file: it is `a cell:12`.
    """
    found: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _CALLS_MODULE:
            found = None
        elif found is None and _is_own(frame.f_code.co_filename):
            found = frame
        frame = frame.f_back
    if found is None:
        return ""
    path = Path(found.f_code.co_filename)
    return f"{path.name if path.exists() else 'a cell'}:{found.f_lineno}"


@functools.cache
def _is_own(path: str) -> bool:
    libraries = ("<frozen", "<string", folder_of("dpprof"), *_STANDARD)
    return not path.startswith(libraries) and "-packages" not in path
