"""The memory timelines of a comparison, thinned so that the page can be sent to a colleague."""

from collections.abc import Mapping
from dataclasses import dataclass

from dpprof.errors import DpprofError
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import StepTimeline
from dpprof.reports import levels
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.places import full_name

_POINTS = 400


@dataclass(frozen=True)
class Curves:
    """MiB alive by category at each of `ms`, and each phase with its start and its end in ms."""

    ms: list[float]
    mib: dict[str, list[float]]
    phases: list[tuple[str, float, float]]
    peak_mib: float


def read_timelines(
    comparison: Comparison, folders: Mapping[tuple[str, str], RunFolder]
) -> tuple[dict[str, Curves], list[str]]:
    """The memory timeline of each cell's first finished run that kept one, by the cell's name, and a sentence
    for each that could not be read. `folders` gives the run folders by source and run name.
    """
    found: dict[str, Curves] = {}
    damaged = []
    for cell in comparison.cells:
        label = f"{full_name(comparison, cell)}: {cell.trainer}"
        for folder in (folders.get((cell.source, run.name)) for run in cell.finished):
            try:
                timeline = folder.read_timeline() if folder is not None else None
            except DpprofError as error:
                damaged.append(f"{error}.")
                continue
            if timeline is not None and label not in found:
                found[label] = _thinned(timeline, cell)
    return found, damaged


def _thinned(timeline: StepTimeline, cell: Cell) -> Curves:
    """The curves with each phase as wide as it takes when nothing watches."""
    phase_s = {phase: ms / 1e3 for phase, ms in cell.phase_ms.items()}
    curves = levels.compute(timeline, phase_s, _POINTS)
    return Curves(
        ms=_short(curves.ms),
        mib={name: _short(mib) for name, mib in curves.mib.items()},
        phases=[(span.name, _rounded(span.start_ms), _rounded(span.end_ms)) for span in curves.spans],
        peak_mib=max(curves.total_mib),
    )


def _short(values: list[float]) -> list[float]:
    return [_rounded(value) for value in values]


def _rounded(value: float) -> float:
    """To what can be seen."""
    return float(f"{value:.5g}")
