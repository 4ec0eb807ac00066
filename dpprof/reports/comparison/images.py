"""The bars of a comparison as PNGs, for MLflow's chart view and for slides."""

import io

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpprof.reports.colors import ink, words
from dpprof.reports.comparison.bars import Bar, Measure, bar, legend, scale
from dpprof.reports.comparison.cells import Comparison
from dpprof.vocabulary.formats import fixed, number

_ROW_INCHES = 0.27
_LABELLED_SHARE = 0.12


def draw(comparison: Comparison, measure: Measure) -> Figure | None:
    """One measure of every cell, a panel for each model; None if no cell has the measure."""
    by_model: dict[str, list[list[Bar]]] = {}
    for place in comparison.places:
        bars = [bar(comparison, cell, measure) for cell in place]
        by_model.setdefault(comparison.model(place[0]).label, []).append(bars)
    if not any(b.total is not None for places in by_model.values() for bars in places for b in bars):
        return None
    rows = [sum(len(bars) + 1 for bars in places) for places in by_model.values()]
    figure = Figure(figsize=(10, 1.4 + _ROW_INCHES * sum(rows)), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(rows), squeeze=False, height_ratios=rows)[:, 0]
    for axes, (model, places) in zip(panels, by_model.items(), strict=True):
        _panel(axes, comparison, measure, places)
        axes.set_title(f"{model}: {measure.title} [{measure.unit}]", fontsize=10, loc="left")
    shown = legend([b for places in by_model.values() for bars in places for b in bars], measure)
    handles = [figure.gca().barh(0, 0, color=measure.color(name), label=words(name)) for name in shown]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _panel(axes: Axes, comparison: Comparison, measure: Measure, places: list[list[Bar]]) -> None:
    whole = scale([b for bars in places for b in bars])
    at, ticks, names = 0, [], []
    for bars in places:
        axes.text(0, at, comparison.place_name(bars[0].cell), va="center", fontsize=8, style="italic")
        for one in bars:
            at += 1
            ticks.append(at)
            names.append(one.cell.trainer)
            _bar(axes, at, one, measure, whole)
        at += 1
    axes.set_yticks(ticks, names, fontsize=8)
    axes.set(xlim=(0, 1.3 * whole), ylim=(at - 0.4, -0.6))
    axes.spines[["top", "right"]].set_visible(False)


def _bar(axes: Axes, at: int, one: Bar, measure: Measure, whole: float) -> None:
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
        axes.barh(at, left, color="white", edgecolor="#d55e00", hatch="///", height=0.8)
    figures = one.failure or "not measured"
    if one.total is not None:
        figures = number(one.total) + ("" if one.ratio is None else f"  {fixed(one.ratio, 2)} x")
        figures += "  disturbed" if one.is_disturbed else ""
    axes.text(left + 0.01 * whole, at, figures, va="center", fontsize=7)
