"""The trainers of a comparison: how many of their runs finished, and what these held on average."""

import statistics
from dataclasses import dataclass

from dpprof.figures.names import PEAK
from dpprof.figures.results import FINISHED
from dpprof.reports.comparison.comparison import Comparison
from dpprof.vocabulary.trainers import trainer_order


@dataclass(frozen=True)
class TrainerRow:
    """One trainer's runs. `mean_peak_mib` is over those that finished; None if none has a peak."""

    trainer: str
    num_finished: int
    num_runs: int
    mean_peak_mib: float | None


def trainer_rows(comparison: Comparison) -> list[TrainerRow]:
    """A row for each trainer."""
    return [
        _row(comparison, trainer)
        for trainer in sorted({cell.trainer for cell in comparison.cells}, key=trainer_order)
    ]


def _row(comparison: Comparison, trainer: str) -> TrainerRow:
    runs = [run for cell in comparison.cells if cell.trainer == trainer for run in cell.runs]
    finished = [run for run in runs if run.status == FINISHED]
    peaks = [run.figures[PEAK] for run in finished if PEAK in run.figures]
    return TrainerRow(trainer, len(finished), len(runs), statistics.fmean(peaks) if peaks else None)
