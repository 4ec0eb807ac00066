"""The chart of the roofline: FLOPs per second against FLOPs per byte, both logarithmic."""

import html
import math

import plotly.graph_objects as go

from dpprof.reports.colors import phase_color, trainer_color
from dpprof.reports.roofline.data import Roofline, Row, Section
from dpprof.reports.roofline.points import COUNTERS, STEP
from dpprof.reports.roofline.roof_lines import LOOKS, Ranges, draw_roof
from dpprof.reports.roofline.roofs import Roof
from dpprof.reports.roofline.texts import GIGA, TERA, flop_rate, scaled
from dpprof.vocabulary.units import GIB

_SYMBOLS = {
    "forward": "circle",
    "backward": "square",
    "backward_norms": "diamond",
    "backward_weighted": "triangle-up",
    "clip": "x",
    "noise": "star",
    "optimizer_step": "cross",
}
_BELOW = {"orientation": "h", "y": -0.16, "yanchor": "top"}


def roofline_figure(roofline: Roofline) -> go.Figure | None:
    """Points under their roofs; None if no phase has FLOPs in a known time.

    A symbol stands for a phase; a colour for a trainer or, where there is only one, for a phase too.
    """
    drawn = [(s, row) for s in roofline.sections for row in s.rows if _is_drawn(row)]
    if not drawn:
        return None
    by_trainer = len({section.trainer for section, _ in drawn}) > 1
    figure = go.Figure()
    fastest = max(row.point.flop_per_s or 0 for _, row in drawn)
    unit, unit_name = (TERA, "TFLOP/s") if fastest >= 10 * TERA else (GIGA, "GFLOP/s")
    x_range, y_range = _ranges(roofline.roofs, [row for _, row in drawn], unit)
    for i in range(len(roofline.roofs)):
        draw_roof(figure, roofline.roofs, i, (x_range, y_range), unit)
    _draw_points(figure, roofline.roofs, drawn, by_trainer, unit)
    _draw_legend(figure, [row.point.phase for _, row in drawn], by_trainer)
    figure.update_layout(
        template="plotly_white",
        height=560,
        margin={"l": 62, "r": 12, "t": 16, "b": 40},
        xaxis=_axis("FLOP per byte", x_range),
        yaxis=_axis(unit_name, y_range),
        hoverlabel={"align": "left", "namelength": -1},
        # One above and one below the chart: on a narrow page each may take several lines.
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"} if by_trainer else _BELOW,
        legend2=_BELOW | {"itemclick": False, "itemdoubleclick": False},
    )
    return figure


def _is_drawn(row: Row) -> bool:
    return row.point.phase != STEP and row.point.flop_per_s is not None and row.point.intensity is not None


def _ranges(roofs: list[Roof], rows: list[Row], unit: float) -> Ranges:
    """Round the points and the ridges, with room to spare, to the right of the ridge most of all."""
    x = [row.point.intensity for row in rows if row.point.intensity]
    y = [row.point.flop_per_s / unit for row in rows if row.point.flop_per_s]
    x += [end for roof in roofs if roof.ridge for end in (roof.ridge, 3 * roof.ridge)]
    y += [roof.matmul.per_s / unit for roof in roofs if roof.matmul]
    # Without arithmetic's ceiling the diagonal has to be in sight where the points are.
    y += [roof.copy.per_s * min(x) / unit for roof in roofs if roof.copy]
    return _around(x), _around(y)


def _around(values: list[float]) -> tuple[float, float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max(0.3, (2 - (high - low)) / 2)
    return low - room, high + room


def _axis(title: str, around: tuple[float, float]) -> dict[str, object]:
    """Every power of ten where there are many, else 2 and 5 between them too."""
    few = around[1] - around[0] < 3.5
    return {
        "type": "log",
        "title": {"text": title},
        "range": list(around),
        "dtick": "D2" if few else 1,
        "exponentformat": "none",
        "tickformat": ",~f",
        "minor": {"showgrid": False},
    }


def _draw_points(
    figure: go.Figure, roofs: list[Roof], drawn: list[tuple[Section, Row]], by_trainer: bool, unit: float
) -> None:
    """One series for each trainer, phase and roof: what shares a colour and a symbol."""
    series: dict[tuple[str, str, str], list[tuple[Section, Row]]] = {}
    for section, row in drawn:
        _, filling, _ = LOOKS[roofs.index(section.roof) % len(LOOKS)]
        symbol = _SYMBOLS.get(row.point.phase, "hexagon") + filling
        series.setdefault((section.trainer, row.point.phase, symbol), []).append((section, row))
    for (trainer, phase, symbol), members in series.items():
        color = trainer_color(trainer) if by_trainer else phase_color(phase)
        rim = {"width": 2, "color": color} if "open" in symbol else {"width": 0.5, "color": "#222222"}
        figure.add_scatter(
            x=[row.point.intensity for _, row in members],
            y=[(row.point.flop_per_s or 0) / unit for _, row in members],
            text=[_hover(section, row) for section, row in members],
            mode="markers",
            name=html.escape(phase, quote=False),
            legendgroup=trainer if by_trainer else phase,
            showlegend=not by_trainer,
            marker={"symbol": symbol, "size": 10, "color": color, "line": rim},
            hovertemplate="%{text}<extra></extra>",
        )


def _hover(section: Section, row: Row) -> str:
    point = row.point
    taken = "DRAM bytes, kernel time" if point.source == COUNTERS else "the ledger's bytes, wall time"
    lines = [
        f"<b>{html.escape(point.phase, quote=False)}</b>",
        *(html.escape(part, quote=False) for part in section.label.split(", ", 1)),
        f"{html.escape(section.roof.device, quote=False)}, {section.roof.precision}",
        f"{scaled(point.intensity)} FLOP/byte",
        f"{flop_rate(point.flop_per_s or 0)}{_share(row.matmul_pct, 'matmul')}",
        f"{scaled(point.bytes_per_s, GIB)} GiB/s{_share(row.copy_pct, 'copy')}",
        taken,
    ]
    return "<br>".join(lines)


def _share(percent: float | None, ceiling: str) -> str:
    return "" if percent is None else f", {scaled(percent)} % of {ceiling}"


def _draw_legend(figure: go.Figure, phases: list[str], by_trainer: bool) -> None:
    """Colours by trainer, which switch points on and off, and below them the phases' symbols."""
    if not by_trainer:
        return
    groups = dict.fromkeys(trace.legendgroup for trace in figure.data if trace.legendgroup)
    entries = [("legend", trainer, "circle", trainer_color(trainer)) for trainer in groups]
    entries += [
        ("legend2", phase, _SYMBOLS.get(phase, "hexagon"), "#ffffff") for phase in dict.fromkeys(phases)
    ]
    for legend, name, symbol, color in entries:
        figure.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            name=html.escape(name, quote=False),
            legend=legend,
            legendgroup=name,
            marker={"symbol": symbol, "size": 10, "color": color, "line": {"width": 1, "color": "#222222"}},
        )
