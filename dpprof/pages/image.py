"""Images as PNGs, for MLflow's chart view and for slides: a memory timeline, and the bars of a comparison.

matplotlib is imported with the first image: that takes as long as all of dpprof's own modules.
"""

import io
from typing import TYPE_CHECKING

from dpprof.findings.levels import Levels
from dpprof.findings.tables import LedgerTables
from dpprof.vocabulary.colors import CATEGORY_COLORS, words
from dpprof.vocabulary.formats import fixed, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEADROOM = 1.25
# Least width of a named phase, and least share of the peak of a category in the legend.
_NARROWEST_LABEL_PCT = 14.0
_LEAST_NAMED_PCT = 2.0
_LARGE, _SMALL = 17, 14
# Charts have few flat colours and blends at edges: a palette keeps a third of the bytes.
_COLORS = 255
# Height of a row of bars, and least share of the scale of a bar's part that is named.
_ROW_INCHES = 0.27
_LABELLED_SHARE = 0.12


def prepare() -> None:
    """Import what draws images."""
    _figure(1, 1)


def _figure(width: float, height: float) -> "Figure":
    """Return an empty figure of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def timeline_of(levels: Levels, tables: LedgerTables, title: str) -> "Figure":
    """Draw the bytes alive over the step, stacked by category, with phases and peak."""
    figure = _figure(8, 6)
    axes = figure.add_subplot()
    least = _LEAST_NAMED_PCT / 100 * max(levels.total_mib)
    axes.stackplot(
        levels.ms,
        *levels.mib.values(),
        # A label with an underscore is left out of the legend.
        labels=[words(name) if max(alive) >= least else f"_{name}" for name, alive in levels.mib.items()],
        colors=[CATEGORY_COLORS[category] for category in levels.mib],
        step="post",
        linewidth=0,
    )
    top = _HEADROOM * max(levels.total_mib) or 1
    whole = levels.ms[-1] or 1.0
    _name_phases(axes, levels, top, whole)
    largest = tables.seen[0]
    late = levels.ms[levels.peak_index] > whole / 2
    axes.annotate(
        f"{size(tables.peak_mib)}\n{words(largest.category)} {fixed(largest.pct, 0)} %",
        (levels.ms[levels.peak_index], levels.total_mib[levels.peak_index]),
        xytext=(-8 if late else 8, 0),
        textcoords="offset points",
        ha="right" if late else "left",
        va="center",
        fontsize=_LARGE,
        fontweight="bold",
        bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
    )
    axes.set(xlim=(0, whole), ylim=(0, top))
    axes.set_xlabel("ms", fontsize=_SMALL)
    axes.set_ylabel("MiB", fontsize=_SMALL)
    axes.tick_params(labelsize=_SMALL)
    axes.locator_params(nbins=5)
    axes.set_title(title, fontsize=_LARGE)
    figure.legend(loc="outside lower center", ncols=3, fontsize=_SMALL, frameon=False)
    return figure


def _name_phases(axes: "Axes", levels: Levels, top: float, whole: float) -> None:
    for i, span in enumerate(levels.spans):
        axes.axvspan(span.start_ms, span.end_ms, color="#9a9a9a" if i % 2 else "#ffffff", alpha=0.2, zorder=0)
        if 100 * (span.end_ms - span.start_ms) / whole >= _NARROWEST_LABEL_PCT:
            middle = (span.start_ms + span.end_ms) / 2
            name = words(span.name).replace(" ", "\n", 1)
            axes.text(middle, 0.985 * top, name, ha="center", va="top", fontsize=_SMALL, linespacing=0.95)


def png(figure: "Figure") -> bytes:
    """Return a figure as PNG with a palette of its own colours; flat ones do not change."""
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    image = Image.open(drawn).convert("RGB")
    few = image.quantize(_COLORS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    kept = io.BytesIO()
    few.save(kept, format="png", optimize=True)
    return kept.getvalue()
