"""`python -m dpprof.measure RUN_FOLDER`."""

import os
import sys
from contextlib import suppress

from dpprof.measure.entry import main

exit_code = main()
# Everything is written. Taking torch's modules apart would hold up the next experiment by a second.
for stream in (sys.stdout, sys.stderr):
    with suppress(Exception):  # closed by a workload
        stream.flush()
os._exit(exit_code)
