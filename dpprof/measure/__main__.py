"""`python -m dpprof.measure RUN_FOLDER`."""

import os
import sys

from dpprof.measure.entry import main

exit_code = main()
# Everything is written. Taking torch's modules apart would hold up the next experiment by a second.
sys.stdout.flush()
sys.stderr.flush()
os._exit(exit_code)
