"""Launching on a Ray cluster. Its nodes share no files: run folders travel there and back."""

import os

# Ray writes what befalls its nodes to this process's output, but dpprof says itself what matters of it. Ray
# reads this when it is imported.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
