"""Where a rank was when it was told to end, for telling which one kept the others waiting."""

import faulthandler
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def stacks_at_end(path: Path) -> Iterator[None]:
    """Write the stacks of all threads into a file on SIGTERM, even while Python waits for a library; then
    SIGTERM does what else it does. No file is left if it does not come.
    """
    with open(path, "w", encoding="utf-8") as file:
        faulthandler.register(signal.SIGTERM, file, all_threads=True, chain=True)
        try:
            yield
        finally:
            faulthandler.unregister(signal.SIGTERM)
            if path.exists() and not path.stat().st_size:
                path.unlink()
