"""Writes the stacks of a rank that is told to end, to show which rank kept the others waiting."""

import faulthandler
import importlib.util
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpprof.vocabulary.messages import WAITS_IN

# Files in which a rank waits for others, or for its device to finish with them.
_WAITING = {
    "torch": ("distributed/", "autograd/", "cuda/", "_ops.py", "_tensor.py"),
    "dpprof": ("measure/ranks.py",),
}


def folder_of(package: str) -> str:
    """Return the folder that a package is imported from, with a trailing separator."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, "an installed package"
    assert spec.origin is not None, "not a namespace"
    return os.path.join(os.path.dirname(spec.origin), "")


@contextmanager
def stacks_at_end(path: Path) -> Iterator[None]:
    """Write the stacks of all threads into a file on SIGTERM, even while Python waits for a library.

    SIGTERM then has its usual effect; without it, no file is left. Above the stacks are the paths of files in
    which a rank waits, one per line, since a user's file may also lie in a folder named torch.
    """
    waiting = [f"{WAITS_IN}{folder_of(name)}{file}\n" for name, files in _WAITING.items() for file in files]
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join([*waiting, "\n"]))
        file.flush()
        size = path.stat().st_size
        faulthandler.register(signal.SIGTERM, file, all_threads=True, chain=True)
        try:
            yield
        finally:
            faulthandler.unregister(signal.SIGTERM)
            if path.exists() and path.stat().st_size == size:
                path.unlink()
