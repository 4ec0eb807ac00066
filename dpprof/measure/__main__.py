"""Entry point of `python -m dpprof.measure RUN_FOLDER`.

With `--fork` it serves estimates (`forks.py`), with `--wait` it gets its folder later (`spare.py`).

The driver runs it by its file path. It then imports the dpprof that the file belongs to, even if the working
directory, where the workload's module may lie, holds another one.
"""

import os
import sys
from contextlib import suppress

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import dpprof  # noqa: F401

    del sys.path[0]
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, os.getcwd())

from dpprof.measure import entry, forks, spare

_SERVED = {forks.OPTION: forks.serve, spare.OPTION: spare.wait}

if __name__ == "__main__":  # a process that the workload spawns imports this file too
    exit_code = (_SERVED.get(sys.argv[1], entry.main) if len(sys.argv) == 2 else entry.main)()
    # Everything is written. Unloading torch's modules would delay the next experiment by a second.
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed by a workload
            stream.flush()
    os._exit(exit_code)
