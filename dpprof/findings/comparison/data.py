"""All data of a comparison, computed once for page, Markdown, images and terminal."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpprof.errors import DpprofError
from dpprof.findings import levels
from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.doubts import doubts
from dpprof.findings.comparison.places import full_name
from dpprof.findings.comparison.rows import CellRow, ModelRows, rows_by_model
from dpprof.findings.verdict.finding import Finding
from dpprof.findings.verdict.verdict import verdict
from dpprof.record.figures.names import predicted_name
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import StepTimeline
from dpprof.vocabulary.colors import CATEGORY_COLORS, words
from dpprof.vocabulary.formats import short
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import MS_PER_S

_POINTS = 400


def read_timelines(
    comparison: Comparison, folders: Mapping[tuple[str, str], RunFolder]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Read the timeline of each cell's first finished run that has one, by the cell's name.

    Also returns a sentence per unreadable one. `folders` are run folders by source and run name.
    """
    found: dict[str, dict[str, Any]] = {}
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


def _thinned(timeline: StepTimeline, cell: Cell) -> dict[str, Any]:
    """Return memory curves for the script: MiB by category at each of `ms`; `peak` is the index of the peak.

    Phases are as wide as their time without the ledger, or as predicted.
    """
    predicted = {phase.name: cell.figures.get(predicted_name(phase.name)) for phase in timeline.phases}
    phase_ms = cell.phase_ms or {phase: ms for phase, ms in predicted.items() if ms is not None}
    curves = levels.compute(timeline, {phase: ms / MS_PER_S for phase, ms in phase_ms.items()}, _POINTS)
    return {
        "trainer": short_name(cell.trainer),
        "ms": [short(at) for at in curves.ms],
        "mib": {name: [short(value) for value in mib] for name, mib in curves.mib.items()},
        "words": [words(name) for name in curves.mib],
        "colors": [CATEGORY_COLORS[name] for name in curves.mib],
        "phases": [(span.name, short(span.start_ms), short(span.end_ms)) for span in curves.spans],
        "peak": curves.peak_index,
    }


@dataclass(frozen=True)
class ComparisonData:
    """The findings of a comparison and the data behind them.

    `findings` is the verdict, `doubts` its caveats; `timelines` has curves by cell name, `damaged` a sentence
    per unreadable timeline.
    """

    comparison: Comparison
    findings: list[Finding]
    doubts: list[str]
    models: list[ModelRows]
    timelines: dict[str, dict[str, Any]]
    damaged: list[str]

    @property
    def rows(self) -> list[CellRow]:
        """Rows of all cells, in the order of the cells."""
        found = {id(row.cell): row for model in self.models for place in model.places for row in place.rows}
        return [found[id(cell)] for cell in self.comparison.cells]


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
    return ComparisonData(
        comparison=comparison,
        findings=verdict(comparison, foreseen),
        doubts=doubts(comparison),
        models=rows_by_model(comparison),
        timelines=timelines,
        damaged=damaged,
    )
