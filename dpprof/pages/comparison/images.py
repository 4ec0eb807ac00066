"""Bars of a comparison as PNGs, for MLflow's chart view and for slides."""

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpprof.findings.comparison.rows import CellBar, Measure, ModelRows, legend
from dpprof.pages.comparison.data import ComparisonData
from dpprof.vocabulary.colors import ink, words
from dpprof.vocabulary.formats import fixed, number
from dpprof.vocabulary.trainers import short_name

_ROW_INCHES = 0.27
_LABELLED_SHARE = 0.12


def draw(data: ComparisonData, measure: Measure) -> Figure | None:
    """Draw one measure of every cell, a panel per model; None if no cell has it."""
    bars = [row.bars[measure.key] for row in data.rows]
    if not any(bar.total is not None for bar in bars):
        return None
    rows = [sum(len(place.rows) + 1 for place in model.places) for model in data.models]
    figure = Figure(figsize=(10, 1.4 + _ROW_INCHES * sum(rows)), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(rows), squeeze=False, height_ratios=rows)[:, 0]
    for axes, model in zip(panels, data.models, strict=True):
        _panel(axes, measure, model)
        axes.set_title(f"{model.model.label}: {measure.title} [{measure.unit}]", fontsize=10, loc="left")
    shown = legend(bars, measure)
    handles = [figure.gca().barh(0, 0, color=measure.color(name), label=words(name)) for name in shown]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def _panel(axes: Axes, measure: Measure, model: ModelRows) -> None:
    whole = model.scales[measure.key]
    at, ticks, names = 0, [], []
    for place in model.places:
        axes.text(0, at, place.name, va="center", fontsize=8, style="italic")
        for row in place.rows:
            at += 1
            ticks.append(at)
            names.append(short_name(row.cell.trainer))
            _bar(axes, at, row.bars[measure.key], measure, whole)
        at += 1
    axes.set_yticks(ticks, names, fontsize=8)
    axes.set(xlim=(0, 1.3 * whole), ylim=(at - 0.4, -0.6))
    axes.spines[["top", "right"]].set_visible(False)


def _bar(axes: Axes, at: int, one: CellBar, measure: Measure, whole: float) -> None:
    left = 0.0
    for name, value in one.parts.items():
        color = measure.color(name)
        axes.barh(at, value, left=left, color=color, edgecolor="#444444", linewidth=0.3, height=0.8)
        if value > _LABELLED_SHARE * whole:
            axes.text(
                left + value / 2, at, words(name), color=ink(color), ha="center", va="center", fontsize=6
            )
        left += value
    if one.total is None and one.limit is not None:
        left = min(one.limit, whole)
        axes.barh(at, left, color="white", edgecolor="#b3261e", hatch="///", height=0.8)
    figures = one.failure or "not measured"
    if one.total is not None:
        figures = number(one.total) + ("" if one.ratio is None else f"  {fixed(one.ratio, 2)} x")
        figures += "  disturbed" if one.is_disturbed else ""
    axes.text(left + 0.01 * whole, at, figures, va="center", fontsize=7)
