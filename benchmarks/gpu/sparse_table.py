"""Calibrates the processor by one operator in so many, as a rehearsal of `dpprof calibrate`.

python benchmarks/gpu/sparse_table.py 60 FOLDER
"""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpprof.measure import calibration
from dpprof.measure.calibration_cases import cases


def main() -> None:
    """Measure the sparse table."""
    every, folder = int(sys.argv[1]), Path(sys.argv[2])

    def few(*asked: Any) -> Iterator[Any]:
        return itertools.islice(cases(*asked), 0, None, every)

    setattr(calibration, "cases", few)  # noqa: B010  a name that it imports
    calibration.write_times("cpu", folder, print)


if __name__ == "__main__":
    main()
