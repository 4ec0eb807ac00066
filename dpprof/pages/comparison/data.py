"""All data of a comparison, computed once for page, Markdown, images and terminal."""

from collections.abc import Mapping
from dataclasses import dataclass

from dpprof.errors import DpprofError
from dpprof.findings import levels
from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.doubts import doubts
from dpprof.findings.comparison.growth import Line, growth
from dpprof.findings.comparison.places import full_name
from dpprof.findings.comparison.rows import CellRow, ModelRows, rows_by_model
from dpprof.findings.comparison.side_tables import (
    CounterRow,
    FailedRun,
    FlopRow,
    Pair,
    PrivacyRow,
    TrainerRow,
    counter_rows,
    failed_runs,
    flop_rows,
    how_measured,
    judgement,
    pairs,
    privacy_rows,
    trainer_rows,
)
from dpprof.findings.verdict.finding import Finding
from dpprof.findings.verdict.verdict import verdict
from dpprof.pages.html import short
from dpprof.record.figures.names import floor_name
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import StepTimeline
from dpprof.vocabulary.colors import category_color, words
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import MS_PER_S

_POINTS = 400


@dataclass(frozen=True)
class Curves:
    """Memory curves of a run: MiB by category at each of `ms`; phases have start and end in ms.

    `words` and `colors` belong to the categories; `peak` is the index of the peak.
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
    """Read the timeline of each cell's first finished run that has one, by the cell's name.

    Also returns a sentence per unreadable one. `folders` are run folders by source and run name.
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
    """Thin the curves, with phases as wide as their time without the ledger, or their least time."""
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


@dataclass(frozen=True)
class ComparisonData:
    """The findings of a comparison and the data behind them.

    `findings` is the verdict, `doubts` its caveats; `judgement` compares hardware counters with common
    expectations; `timelines` has curves by cell name, `damaged` a sentence per unreadable timeline.
    """

    comparison: Comparison
    findings: list[Finding]
    doubts: list[str]
    trainers: list[TrainerRow]
    models: list[ModelRows]
    growth: list[Line]
    flops: list[FlopRow]
    privacy: list[PrivacyRow]
    counters: list[CounterRow]
    judgement: list[str]
    pairs: list[Pair]
    failed: list[FailedRun]
    measured: list[dict[str, str]]
    timelines: dict[str, Curves]
    damaged: list[str]

    @property
    def rows(self) -> list[CellRow]:
        """Rows of all cells, in the order of the cells."""
        found = {id(row.cell): row for model in self.models for place in model.places for row in place.rows}
        return [found[id(cell)] for cell in self.comparison.cells]

    @property
    def counters_by_place(self) -> dict[tuple[str, str], list[CounterRow]]:
        """Rows of counters by model and place."""
        found: dict[tuple[str, str], list[CounterRow]] = {}
        for row in self.counters:
            found.setdefault((row.where.model, row.where.place), []).append(row)
        return found


def compute(
    comparison: Comparison,
    folders: Mapping[tuple[str, str], RunFolder] | None = None,
    foreseen: Comparison | None = None,
) -> ComparisonData:
    """Compute a comparison's data.

    `folders` are run folders by source and run name, for memory timelines if wanted; `foreseen` are estimates
    of a larger model, for the verdict only.
    """
    timelines, damaged = read_timelines(comparison, folders or {})
    counters = counter_rows(comparison)
    return ComparisonData(
        comparison=comparison,
        findings=verdict(comparison, foreseen),
        doubts=doubts(comparison),
        trainers=trainer_rows(comparison),
        models=rows_by_model(comparison),
        growth=list(growth(comparison)),
        flops=flop_rows(comparison),
        privacy=privacy_rows(comparison),
        counters=counters,
        judgement=judgement(counters),
        pairs=pairs(comparison),
        failed=failed_runs(comparison),
        measured=how_measured(comparison),
        timelines=timelines,
        damaged=damaged,
    )
