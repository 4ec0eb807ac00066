"""What the files of this room import of cells and their runs."""

from dpprof.figures.names import IQR, MOVED, PEAK, SAMPLES, STEP
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison, compare, faults, merge
from dpprof.reports.comparison.run import MovedBytes, Run

__all__ = [
    "IQR",
    "MOVED",
    "PEAK",
    "SAMPLES",
    "STEP",
    "Cell",
    "Comparison",
    "MovedBytes",
    "Run",
    "compare",
    "faults",
    "merge",
]
