"""The interactive charts of the memory timeline page."""

import numpy as np
import plotly.graph_objects as go

from dpprof.record.ledger import LedgerResult, Moved
from dpprof.reports.colors import CLASS_COLORS, category_color, class_color, words
from dpprof.reports.levels import Levels
from dpprof.reports.tables import BETWEEN, LedgerTables
from dpprof.vocabulary.formats import fixed, size
from dpprof.vocabulary.order import listed_first
from dpprof.vocabulary.units import mib

_NARROWEST_LABEL_PCT = 6.0


def memory_figure(levels: Levels, tables: LedgerTables) -> go.Figure:
    """Bytes alive over the step, stacked by category; phases as bands; the peak named."""
    figure = go.Figure()
    x = np.array(levels.ms, dtype=np.float32)
    for category, alive in levels.mib.items():
        figure.add_scatter(
            x=x,
            y=np.array(alive, dtype=np.float32),
            name=words(category),
            stackgroup="memory",
            mode="lines",
            line={"shape": "hv", "width": 0.5, "color": category_color(category)},
            fillcolor=category_color(category),
            hovertemplate="%{y:.6~g} MiB",
        )
    figure.add_scatter(
        x=x,
        y=np.array(levels.total_mib, dtype=np.float32),
        name="total",
        mode="lines",
        line={"shape": "hv", "width": 1, "color": "#222222"},
        text=_phase_names(levels),
        hovertemplate="%{y:.6~g} MiB in %{text}",
    )
    _shade_phases(figure, levels)
    _mark_peak(figure, levels, tables)
    figure.update_layout(
        template="plotly_white",
        height=560,
        hovermode="x unified",
        hoverlabel={"namelength": -1},
        margin={"l": 56, "r": 12, "t": 84, "b": 40},
        xaxis={"title": "time in the step [ms]", "range": [0, levels.ms[-1] or 1], "hoverformat": ".2f"},
        yaxis={"title": "alive [MiB]", "range": [0, 1.4 * max(levels.total_mib) or 1]},
        legend={"orientation": "h", "y": -0.16, "yanchor": "top", "traceorder": "normal"},
    )
    return figure


def _phase_names(levels: Levels) -> list[str]:
    """The phase of every point, the later one where two meet."""
    names = np.full(len(levels.ms), BETWEEN, dtype=object)
    ms = np.array(levels.ms)
    for span in levels.spans:
        names[(ms >= span.start_ms) & (ms <= span.end_ms)] = span.name
    return [str(name) for name in names]


def _shade_phases(figure: go.Figure, levels: Levels) -> None:
    """A band for each phase, every other one grey, with its name above where there is room."""
    whole = levels.ms[-1] or 1.0
    for i, span in enumerate(levels.spans):
        figure.add_vrect(
            x0=span.start_ms,
            x1=span.end_ms,
            fillcolor="#9a9a9a" if i % 2 else "#ffffff",
            opacity=0.22,
            line_width=0,
            layer="below",
        )
        width_pct = 100 * (span.end_ms - span.start_ms) / whole
        if width_pct >= _NARROWEST_LABEL_PCT:
            figure.add_annotation(
                x=(span.start_ms + span.end_ms) / 2,
                y=1,
                yref="paper",
                yanchor="bottom",
                text=span.name,
                textangle=0 if width_pct > 3 * _NARROWEST_LABEL_PCT else -35,
                showarrow=False,
                font={"size": 11, "color": "#444444"},
            )


def _mark_peak(figure: go.Figure, levels: Levels, tables: LedgerTables) -> None:
    at_ms = levels.ms[levels.peak_index]
    late = at_ms > levels.ms[-1] / 2
    lines = [f"<b>peak of the tensors {size(tables.peak_mib)}</b> in {tables.peak_phase}"]
    lines += [f"{words(s.category)} {size(s.mib)} ({fixed(s.pct, 0)} %)" for s in tables.seen[:3]]
    figure.add_annotation(
        x=at_ms,
        y=levels.total_mib[levels.peak_index],
        text="<br>".join(lines),
        align="left",
        showarrow=True,
        arrowhead=2,
        ax=-24 if late else 24,
        ay=-16,
        xanchor="right" if late else "left",
        yanchor="bottom",
        bgcolor="rgba(255,255,255,0.88)",
        bordercolor="#888888",
        font={"size": 12},
    )


def traffic_figure(ledger: LedgerResult, phases: list[str]) -> go.Figure:
    """Bytes read and written in each of some phases, stacked by operator class."""
    found = ledger.moved(by=lambda row: (row.phase or BETWEEN, row.operator_class))
    figure = go.Figure()
    drawn = (name for phase, name in found if phase in phases)
    for name in listed_first(drawn, CLASS_COLORS):
        keys = [(phase, name) for phase in phases]
        if not any(key in found for key in keys):
            continue
        moved = [found.get(key, Moved()) for key in keys]
        figure.add_bar(
            y=phases,
            x=[mib(each.num_bytes) for each in moved],
            customdata=[[mib(each.read), mib(each.written)] for each in moved],
            name=words(name),
            orientation="h",
            marker_color=class_color(name),
            hovertemplate=f"{words(name)} in %{{y}}: %{{x:,.6~g}} MiB<br>"
            "read %{customdata[0]:,.6~g}, written %{customdata[1]:,.6~g}<extra></extra>",
        )
    figure.update_layout(
        template="plotly_white",
        barmode="stack",
        height=150 + 34 * len(phases),
        margin={"l": 130, "r": 12, "t": 10, "b": 40},
        xaxis={"title": "moved [MiB]"},
        yaxis={"autorange": "reversed"},
        legend={"orientation": "h", "y": -0.3, "yanchor": "top", "traceorder": "normal"},
    )
    return figure
