"""Finds the line of the loop that is being run: outside of libraries, and of models' forward."""

import functools
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

from dpprof.measure.stacks import folder_of

_STANDARD = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
_CALLS_MODULE = "_call_impl"  # of torch.nn.Module
# Modules, with those inside them, that write down or draw what they are given.
_LOGS = (
    "torch.utils.tensorboard",
    "tensorboard",
    "tensorboardX",
    "mlflow",
    "wandb",
    "comet_ml",
    "aim",
    "neptune",
    "clearml",
    "tqdm",
    "rich",
    "logging",
    "json",
    "matplotlib",
)
# Packages that such a module calls, beside the standard library.
_CALLED_BY_LOGS = {"dpprof", "numpy", "torch"}


def line_now() -> str:
    """Return the file and line of the loop that runs now, `train.py:12`; empty outside of it.

    A cell of a notebook has no file: it is `a cell:12`.
    """
    return _line_in(traceback.walk_stack(sys._getframe(1)))


def line_of(error: BaseException) -> str:
    """Return the file and line of the loop where an error arose; empty if it arose elsewhere."""
    return _line_in(reversed(list(traceback.walk_tb(error.__traceback__))))


def is_logged_now() -> bool:
    """Tell if a library for logs runs now, itself or within what it calls of torch, numpy or Python."""
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        name = frame.f_globals.get("__name__") or ""
        package = name.partition(".")[0]
        if _is_own(frame.f_code.co_filename):
            return False
        if any(f"{name}.".startswith(f"{each}.") for each in _LOGS):
            return True
        if package not in _CALLED_BY_LOGS and package not in sys.stdlib_module_names:
            return False
    return False


def _line_in(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return the file and line of the innermost call of the loop; frames begin with the innermost."""
    found: tuple[FrameType, int] | None = None
    for frame, line in frames:
        if frame.f_code.co_name == _CALLS_MODULE:
            found = None
        elif found is None and _is_own(frame.f_code.co_filename):
            found = frame, line
    if found is None:
        return ""
    path = Path(found[0].f_code.co_filename)
    return f"{path.name if path.exists() else 'a cell'}:{found[1]}"


@functools.cache
def _is_own(path: str) -> bool:
    libraries = ("<frozen", "<string", folder_of("dpprof"), *_STANDARD)
    return not path.startswith(libraries) and "-packages" not in path
