"""The comparison page: one self-contained HTML file. First figures (tiles, charts, bars), then words.

Charts are inline SVG, bars and tables plain HTML, so that it can be read without JavaScript, on a phone and
in print; scripts add filters, sorting, and two memory timelines to choose.
"""

import re
from dataclasses import dataclass

from dpprof.config.flat import trainers_options
from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.data import ComparisonData
from dpprof.findings.comparison.growth import growth
from dpprof.findings.comparison.models import Model
from dpprof.findings.comparison.places import size_of
from dpprof.findings.comparison.rows import MEASURES, ModelRows, PlaceRows
from dpprof.findings.comparison.side_tables import trainer_rows
from dpprof.findings.verdict.finding import Finding
from dpprof.findings.verdict.largest_batch import extrapolate
from dpprof.pages import html, svg
from dpprof.pages.comparison.charts import growth_charts, memory_against_time
from dpprof.pages.comparison.tables import measured_table, side_tables
from dpprof.record.figures.names import SAMPLES
from dpprof.record.record import FailureKind
from dpprof.vocabulary.formats import memory
from dpprof.vocabulary.trainers import STANDARD

# Topics of the opening finding, most important first.
_FIRST = ("Use", "Estimate", "Fits", "Memory", "Time", "Largest batch", "No verdict")


def render(data: ComparisonData) -> str:
    """Return the page as HTML. Every name from outside is escaped."""
    charts = [(group.model.label, memory_against_time(group)) for group in data.models]
    return html.render(
        "comparison.html",
        data=data,
        advice=advice(data.findings),
        tiles=tiles_of(data),
        trainers=[row.trainer for row in trainer_rows(data.comparison)],
        scatters=[(name, chart) for name, chart in charts if chart is not None],
        standard=STANDARD,
        measures=MEASURES,
        samples=SAMPLES,
        growth_charts=growth_charts(growth(data.comparison)),
        dash_key=lambda dash: svg.key(None, "var(--ink)", dash=dash),
        side_tables=side_tables(data.comparison),
        measured_table=measured_table(data.comparison),
    )


def advice(findings: list[Finding]) -> Finding | None:
    """Return the opening finding, cut to its first sentence; None if there is no suitable one."""
    topics = {finding.topic: finding for finding in reversed(findings)}
    found = next((topics[topic] for topic in _FIRST if topic in topics), None)
    if found is None:
        return None
    return Finding(found.topic, re.split(r"(?<=\.) (?=[A-Z])", found.text)[0])


@dataclass(frozen=True)
class Tiles:
    """The place whose rows are tiles, the largest batches of trainers in words, where known, and a note."""

    model: Model
    place: PlaceRows
    largest_batch: dict[str, str]
    note: str

    @property
    def has_ratios(self) -> bool:
        """True if any figure has a ratio to StandardTrainer's."""
        return any(bar.ratio is not None for row in self.place.rows for bar in row.bars.values())

    @property
    def longest(self) -> dict[str, float]:
        """Longest bar of each measure."""
        keys = self.place.rows[0].bars
        return {key: max(row.bars[key].length for row in self.place.rows) or 1.0 for key in keys}


def tiles_of(data: ComparisonData) -> Tiles | None:
    """Return tiles for the place where most trainers finished, the largest if tied; None if none did."""
    places = [(group, place) for group in data.models for place in group.places]
    if not any(row.cell.finished for _, place in places for row in place.rows):
        return None
    group, place = max(places, key=_tells)
    return Tiles(group.model, place, *_batches(data.comparison, group, place))


def _tells(found: tuple[ModelRows, PlaceRows]) -> tuple[int, bool, tuple[int, ...]]:
    """Order places by the number of finished trainers, then measured before estimated, then by size."""
    cells = [row.cell for row in found[1].rows]
    num_finished = sum(bool(cell.finished) for cell in cells)
    return num_finished, not cells[0].is_estimate, max(size_of(cell) for cell in cells)


def _batches(comparison: Comparison, group: ModelRows, place: PlaceRows) -> tuple[dict[str, str], str]:
    """Return the model's largest batch per trainer, if some ran out of memory or lines can be extended."""
    found = _that_ran_out(group, place)
    if found:
        return found, "Largest batch: the largest that fitted of those tried, with otherwise equal settings."
    of_model = [cell for cell in comparison.cells if comparison.model(cell) == group.model]
    reaches = extrapolate(Comparison(comparison.name, of_model))
    if not reaches:
        return {}, ""
    note = (
        f"Largest batch: for {group.model.label}, {reaches[0].line.place}, from lines through the measured "
        f"peaks, extended to this device's {memory(reaches[0].limit_mib)}. Extrapolated, not measured."
    )
    return {reach.line.trainer: f"at most about {reach.batch:,}" for reach in reaches}, note


def _that_ran_out(group: ModelRows, place: PlaceRows) -> dict[str, str]:
    """Return batches that fit by trainer, if memory ran out at a place that only differs in the batch."""
    series = [row.cell for other in group.places if _differ_in_batch(place, other) for row in other.rows]
    if not any(cell.failure == FailureKind.OOM for cell in series):
        return {}
    trainers = dict.fromkeys(cell.trainer for cell in series)
    return {trainer: _fitted([cell for cell in series if cell.trainer == trainer]) for trainer in trainers}


def _differ_in_batch(place: PlaceRows, other: PlaceRows) -> bool:
    one, two = place.rows[0].cell, other.rows[0].cell
    left_out = {"trainer", "batch_size", *trainers_options(one.config)}
    return one.source == two.source and all(
        two.settings.get(name) == value for name, value in one.settings.items() if name not in left_out
    )


def _fitted(cells: list[Cell]) -> str:
    fitting = [cell.config.batch_size for cell in cells if cell.finished]
    lacking = [cell.config.batch_size for cell in cells if cell.failure == FailureKind.OOM]
    if not lacking:
        return f"{max(fitting):,} or more" if fitting else ""
    return f"{max(fitting):,}; {min(lacking):,} runs out" if fitting else f"below {min(lacking):,}"
