"""The memory timelines of a comparison, thinned so that the page can be sent to a colleague."""

from collections.abc import Mapping
from dataclasses import dataclass

from dpprof.errors import DpprofError
from dpprof.figures.names import floor_name
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import StepTimeline
from dpprof.reports import levels
from dpprof.reports.colors import category_color, words
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.places import full_name
from dpprof.reports.packed import short
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import MS_PER_S

_POINTS = 400


@dataclass(frozen=True)
class Curves:
    """MiB alive by category at each of `ms`, and each phase with its start and its end in ms, of a run of
    `trainer` (its short name).

    `words` and `colors` are the categories', in their order; `peak` is the index of the peak.
    """

    trainer: str
    ms: list[float]
    mib: dict[str, list[float]]
    words: list[str]
    colors: list[str]
    phases: list[tuple[str, float, float]]
    peak: int


def read_timelines(
    comparison: Comparison, folders: Mapping[tuple[str, str], RunFolder]
) -> tuple[dict[str, Curves], list[str]]:
    """The memory timeline of each cell's first finished run that kept one, by the cell's name, and a sentence
    for each that could not be read. `folders` gives the run folders by source and run name.
    """
    found: dict[str, Curves] = {}
    damaged = []
    for cell in comparison.cells:
        label = f"{short_name(cell.trainer)}: {full_name(comparison, cell)}"
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
    """The curves with each phase as wide as it takes when nothing watches; in an estimate, at least."""
    floors = {phase.name: cell.figures.get(floor_name(phase.name)) for phase in timeline.phases}
    phase_ms = cell.phase_ms or {phase: ms for phase, ms in floors.items() if ms is not None}
    curves = levels.compute(timeline, {phase: ms / MS_PER_S for phase, ms in phase_ms.items()}, _POINTS)
    return Curves(
        trainer=short_name(cell.trainer),
        ms=_short(curves.ms),
        mib={name: _short(mib) for name, mib in curves.mib.items()},
        words=[words(name) for name in curves.mib],
        colors=[category_color(name) for name in curves.mib],
        phases=[(span.name, short(span.start_ms), short(span.end_ms)) for span in curves.spans],
        peak=curves.peak_index,
    )


def _short(values: list[float]) -> list[float]:
    return [short(value) for value in values]
