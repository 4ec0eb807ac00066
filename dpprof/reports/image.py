"""The memory timeline as a PNG, for MLflow's chart view, where images of several runs stand side by side."""

import io
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpprof.record.folder import write_bytes
from dpprof.reports.colors import category_color, words
from dpprof.reports.levels import Levels
from dpprof.reports.tables import LedgerTables
from dpprof.vocabulary.formats import fixed, size

_NARROWEST_LABEL_PCT = 5.0


def draw(levels: Levels, tables: LedgerTables, title: str) -> Figure:
    """Bytes alive over the step, stacked by category, with the phases and the peak."""
    figure = Figure(figsize=(10, 6), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.stackplot(
        levels.ms,
        *levels.mib.values(),
        labels=[words(category) for category in levels.mib],
        colors=[category_color(category) for category in levels.mib],
        step="post",
        linewidth=0,
    )
    top = 1.12 * max(levels.total_mib) or 1
    whole = levels.ms[-1] or 1.0
    for i, span in enumerate(levels.spans):
        axes.axvspan(span.start_ms, span.end_ms, color="#9a9a9a" if i % 2 else "#ffffff", alpha=0.2, zorder=0)
        if 100 * (span.end_ms - span.start_ms) / whole >= _NARROWEST_LABEL_PCT:
            middle = (span.start_ms + span.end_ms) / 2
            axes.text(middle, 0.99 * top, span.name, ha="center", va="top", fontsize=8, rotation=20)
    largest = tables.seen[0]
    axes.annotate(
        f"peak of the tensors {size(tables.peak_mib)}\n{words(largest.category)} {fixed(largest.pct, 0)} %",
        (levels.ms[levels.peak_index], levels.total_mib[levels.peak_index]),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=9,
    )
    axes.set(xlim=(0, whole), ylim=(0, top), xlabel="time in the step [ms]", ylabel="alive [MiB]")
    axes.set_title(title, fontsize=10)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def write(path: Path, levels: Levels, tables: LedgerTables, title: str) -> None:
    """Draw the image into a file."""
    buffer = io.BytesIO()
    draw(levels, tables, title).savefig(buffer, format="png")
    write_bytes(path, buffer.getvalue())
