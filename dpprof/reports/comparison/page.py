"""The comparison page: one self-contained HTML file with the verdict, the bars, the growth and the timelines.

Bars and tables are plain HTML, so that the page can be read without JavaScript, on a phone and in print;
scripts add the filters, the growth chart and the two memory timelines that the reader chooses.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from dpprof.errors import DpprofError
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import StepTimeline
from dpprof.reports import levels
from dpprof.reports.colors import CATEGORY_COLORS, category_color, ink, words
from dpprof.reports.comparison.bars import MEASURES, Bar, bar, legend, scale
from dpprof.reports.comparison.cells import SAMPLES, Cell, Comparison, Run, faults
from dpprof.reports.comparison.counter_ratios import LEVELS, Counted, counted, judgement
from dpprof.reports.comparison.doubts import doubts
from dpprof.reports.comparison.estimates import Pair, pairs
from dpprof.reports.comparison.figures import growth_figure
from dpprof.reports.comparison.growth import Line, growth
from dpprof.reports.comparison.markdown import failure, percent, reason
from dpprof.reports.comparison.models import Model
from dpprof.reports.comparison.verdict import Best, Finding, fastest_at, smallest_at, verdict
from dpprof.vocabulary.formats import fixed, memory, number
from dpprof.vocabulary.order import listed_first

_TIMELINE_POINTS = 400


def _breakable(name: str) -> Markup:
    """A class name that a narrow column may break between its words."""
    return Markup("<wbr>").join(re.split(r"(?<=[a-z])(?=[A-Z])", name))


def code(text: str) -> Markup:
    """A sentence with what stands in backticks set as code."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if i % 2 else Markup("{}").format(part)
        for i, part in enumerate(parts)
    )


_templates = jinja2.Environment(
    loader=jinja2.PackageLoader("dpprof.reports"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
_templates.policies["json.dumps_kwargs"] = {"sort_keys": False}  # curves are stacked in their order
_templates.filters |= {
    "words": words,
    "ink": ink,
    "number": number,
    "code": code,
    "fixed": fixed,
    "memory": memory,
    "breakable": _breakable,
}


@dataclass(frozen=True)
class Row:
    """One cell: a bar for each measure, what is best of it at its place, and whether an estimate fits."""

    cell: Cell
    bars: list[Bar]
    samples_per_s: float | None
    held_against: str
    awards: list[str]


@dataclass(frozen=True)
class Place:
    """The cells of all trainers under the same settings."""

    name: str
    settings: dict[str, Any]
    rows: list[Row]


@dataclass(frozen=True)
class Group:
    """The places of one model, which share the scales of their bars and the legends."""

    model: Model
    places: list[Place]
    scales: list[float]
    legends: list[list[str]]


@dataclass(frozen=True)
class Page:
    """What the page shows. `timelines` holds thinned curves for the scripts, by the run's label."""

    comparison: Comparison
    findings: list[Finding]
    doubts: list[str]
    groups: list[Group]
    growth: list[Line]
    counted: list[Counted]
    pairs: list[Pair]
    failures: list[tuple[Cell, Run]]
    measured: list[dict[str, str]]
    timelines: dict[str, dict[str, Any]]


def compute(comparison: Comparison, folders: Mapping[tuple[str, str], RunFolder]) -> Page:
    """The page of a comparison. `folders` gives the run folders by source and run name, for the timelines."""
    timelines, damaged = _timelines(comparison, folders)
    return Page(
        comparison=comparison,
        findings=verdict(comparison),
        doubts=doubts(comparison) + damaged,
        groups=_groups(comparison),
        growth=list(growth(comparison)),
        counted=counted(comparison),
        pairs=pairs(comparison),
        failures=faults(comparison),
        measured=_measured(comparison),
        timelines=timelines,
    )


def render(page: Page) -> str:
    """The page as HTML. Every name from outside is escaped, in the text and in the scripts' data."""
    config = {"displaylogo": False, "responsive": True}
    figure = growth_figure(page.growth)
    chart = figure and figure.to_html(
        full_html=False, include_plotlyjs=False, config=config, div_id="growth-chart"
    )
    categories = (name for timeline in page.timelines.values() for name in timeline["mib"])
    drawn = listed_first(categories, CATEGORY_COLORS)
    return _templates.get_template("comparison.html").render(
        page=page,
        measures=MEASURES,
        growth_chart=chart,
        plotly=get_plotlyjs(),
        category_colors={name: category_color(name) for name in drawn},
        category_names={name: words(name) for name in drawn},
        failure=failure,
        reason=reason,
        percent=percent,
        counter_levels=[name for name, _, _ in LEVELS.values()],
        counter_sentences=judgement(page.counted),
    )


def _groups(comparison: Comparison) -> list[Group]:
    by_model: dict[Model, list[list[Cell]]] = {}
    for place in comparison.places:
        by_model.setdefault(comparison.model(place[0]), []).append(place)
    return [_group(comparison, model, places) for model, places in by_model.items()]


def _group(comparison: Comparison, model: Model, places: list[list[Cell]]) -> Group:
    shown = [_place(comparison, place) for place in places]
    scales, legends = [], []
    for i, measure in enumerate(MEASURES):
        bars = [row.bars[i] for place in shown for row in place.rows]
        scales.append(scale(bars))
        legends.append(legend(bars, measure))
    return Group(model, shown, scales, legends)


def _place(comparison: Comparison, cells: list[Cell]) -> Place:
    bests = {"fastest": fastest_at(cells), "least memory": smallest_at(cells)}
    rows = [
        Row(
            cell=cell,
            bars=[bar(comparison, cell, measure) for measure in MEASURES],
            samples_per_s=cell.figures.get(SAMPLES) if cell.finished else None,
            held_against=_held_against(cell),
            awards=[award for award, best in bests.items() if _alone(best, cell)],
        )
        for cell in cells
    ]
    return Place(comparison.place_name(cells[0]), cells[0].settings, rows)


def _held_against(cell: Cell) -> str:
    """What an estimated cell needs of its device, and whether it fits."""
    held = cell.held_against
    return f"needs {memory(cell.figures['memory/needed_mib'], 2)}: {held}" if held else ""


def _alone(best: Best | None, cell: Cell) -> bool:
    return best is not None and len(best.winners) == 1 and best.winners[0] is cell


def _measured(comparison: Comparison) -> list[dict[str, str]]:
    """How each source was measured: what all its cells share is given once."""
    rows = []
    for source in comparison.sources:
        cells = [cell for cell in comparison.cells if cell.source == source]
        row = {"source": source, "runs of a cell": _values(len(cell.runs) for cell in cells)}
        row |= {
            name.replace("_", " "): _values(cell.settings[name] for cell in cells)
            for name in ("warmup_steps", "measured_steps", "passes", "device", "precision")
        }
        names = dict.fromkeys(name for cell in cells for name in cell.environment)
        row |= {
            name.replace("_", " "): _values(
                cell.environment.get(name, "") for cell in cells if cell.environment
            )
            for name in names
        }
        rows.append(row)
    return rows


def _values(values: Any) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))


def _timelines(
    comparison: Comparison, folders: Mapping[tuple[str, str], RunFolder]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The memory timeline of each cell's first finished run that kept one, and what could not be read."""
    found: dict[str, dict[str, Any]] = {}
    damaged = []
    for cell in comparison.cells:
        label = f"{comparison.model(cell).label}, {comparison.place_name(cell)}: {cell.trainer}"
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
    """The curves as the page's script draws them, each phase as wide as it takes when nothing watches."""
    phase_s = {phase: ms / 1e3 for phase, ms in cell.phase_ms.items()}
    curves = levels.compute(timeline, phase_s, _TIMELINE_POINTS)
    return {
        "ms": _short(curves.ms),
        "mib": {name: _short(mib) for name, mib in curves.mib.items()},
        "phases": [[span.name, *_short([span.start_ms, span.end_ms])] for span in curves.spans],
        "peak_mib": max(curves.total_mib),
    }


def _short(values: list[float]) -> list[float]:
    """Rounded to what can be seen: the page has to be sent to a colleague."""
    return [float(f"{value:.5g}") for value in values]
