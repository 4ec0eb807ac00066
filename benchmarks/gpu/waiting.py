"""A measuring process that imports everything, waits for its run folder on standard input, and measures it.

    python benchmarks/gpu/waiting.py [MODULE ...]

It touches no GPU before. The time it waits is no start-up, so its record has none.
"""

import importlib
import json
import sys
from pathlib import Path

from dpprof.measure import entry
from dpprof.record.files import write_text
from dpprof.record.folder import RunFolder


def main() -> int:
    """Wait, measure, and return the exit code."""
    entry.prepare()
    entry.defer_opacus()
    from dpprof.measure import experiment  # noqa: F401
    from dpprof.measure.trainers.build import import_trainers

    import_trainers("", lambda text: None)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    path = sys.stdin.readline().strip()
    if not path:
        return 1
    folder = RunFolder(Path(path))
    code = entry.measure(folder)
    if folder.record.exists():
        record = json.loads(folder.record.read_text(encoding="utf-8"))
        write_text(folder.record, json.dumps(record | {"startup_s": None}))
    return code


if __name__ == "__main__":
    sys.exit(main())
