"""`python -m dpprof.measure RUN_FOLDER`; with `--fork` it waits for run folders to estimate."""

import os
import sys
from contextlib import suppress

from dpprof.measure import entry, forks

exit_code = forks.serve() if sys.argv[1:] == [forks.OPTION] else entry.main()
# Everything is written. Taking torch's modules apart would hold up the next experiment by a second.
for stream in (sys.stdout, sys.stderr):
    with suppress(Exception):  # closed by a workload
        stream.flush()
os._exit(exit_code)
