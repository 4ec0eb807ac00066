"""dpprof with short calibrations, as a program: the driving process, and the measuring ones that it starts.

    python tests/example_calibrating.py calibrate --device cpu

They time two operators, and no collectives. With the variable WAITS=2, round 2 begins once there is a file
`go`, for two minutes at most.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock


def measure() -> int:
    """Measure as `python -m dpprof.measure --calibrate` does, but little."""
    import torch

    from dpprof.measure import calibration, entry
    from dpprof.measure.calibration_cases import Case

    def few(*asked: Any) -> Iterator[Case]:
        yield from (Case(torch.mm, ((8, 8),) * 2), Case(torch.add, ((8, 8),) * 2))

    def say_and_wait(text: str) -> None:
        say(text)
        deadline = time.monotonic() + 120
        while f"round {os.environ.get('WAITS')} " in text and not Path("go").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    say = entry.say
    little: dict[str, Any] = {"COPY_BYTES": {"cpu": 2**20}, "MATRIX_ROWS": {"cpu": 128}}
    with (
        mock.patch.object(entry, "say", say_and_wait),
        mock.patch.multiple(calibration, cases=few, _collectives=lambda *asked: iter(()), **little),
    ):
        return entry.main()


def drive() -> None:
    """Run a command of dpprof whose measuring processes run this file."""
    from dpprof.cli.main import main
    from dpprof.drive.launch import job

    with mock.patch.object(job, "MEASURE", __file__):
        main()


if __name__ == "__main__":
    if sys.argv[1] == "--calibrate":
        sys.exit(measure())
    drive()
