"""Launches on a Ray cluster. Its nodes share no files, so run folders are sent there and back."""

import os

# Keeps Ray's messages about its nodes out of the output; dpprof reports what matters. Ray reads this when it
# is imported.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
