"""The chart of the roofline: FLOPs per second against FLOPs per byte, both logarithmic."""

import math
from dataclasses import dataclass

from markupsafe import Markup

from dpprof.reports import svg
from dpprof.reports.colors import phase_color, trainer_color
from dpprof.reports.roofline.data import Roofline, Row, Section
from dpprof.reports.roofline.points import COUNTERS, STEP
from dpprof.reports.roofline.roof_lines import LOOKS, Plot, draw_roof
from dpprof.reports.roofline.roofs import Roof
from dpprof.reports.roofline.texts import GIGA, TERA, flop_rate, scaled
from dpprof.vocabulary.units import GIB

_SYMBOLS = {
    "forward": "circle",
    "backward": "square",
    "backward_norms": "diamond",
    "backward_weighted": "triangle",
    "clip": "x",
    "noise": "star",
    "optimizer_step": "cross",
}
_ANY_OTHER = "down"
_HEIGHT = 400


@dataclass(frozen=True)
class RooflineChart:
    """The chart; the trainers of its colours, if it has several, and the phases of its symbols with these."""

    chart: Markup
    trainers: list[str]
    phases: dict[str, Markup]


def roofline_chart(roofline: Roofline) -> RooflineChart | None:
    """Points under their roofs; None if no phase has FLOPs in a known time.

    A symbol stands for a phase; a colour for a trainer or, where there is only one, for a phase too.
    """
    drawn = [(s, row) for s in roofline.sections for row in s.rows if _is_drawn(row)]
    if not drawn:
        return None
    trainers = list(dict.fromkeys(section.trainer for section, _ in drawn))
    phases = list(dict.fromkeys(row.point.phase for _, row in drawn))
    by_trainer = len(trainers) > 1
    plot, unit_name = _plot(roofline.roofs, [row for _, row in drawn])
    area = svg.element(
        "rect",
        x=plot.x.start,
        y=plot.y.end,
        width=plot.x.end - plot.x.start,
        height=plot.y.start - plot.y.end,
    )
    lines = [draw_roof(roofline.roofs, i, plot) for i in range(len(roofline.roofs))]
    children = [
        svg.element("clipPath", area, id="plot-area"),
        svg.axes(plot.x, plot.y, "FLOP per byte", unit_name),
        svg.element("g", *(line for line, _ in lines), class_="roofs", clip_path="url(#plot-area)"),
        *(names for _, names in lines),
        *(_mark(section, row, roofline.roofs, plot, by_trainer) for section, row in drawn),
    ]
    label = "FLOPs per second against FLOPs per byte of each phase; its figures are in the table of phases"
    keys = {phase: svg.key(_symbol(phase), _key_color(phase, by_trainer)) for phase in phases}
    chart = svg.chart(label, *children, name="roofline", height=_HEIGHT)
    return RooflineChart(chart, trainers if by_trainer else [], keys)


def _is_drawn(row: Row) -> bool:
    return row.point.phase != STEP and row.point.flop_per_s is not None and row.point.intensity is not None


def _symbol(phase: str) -> str:
    return _SYMBOLS.get(phase, _ANY_OTHER)


def _key_color(phase: str, by_trainer: bool) -> str:
    return "var(--page)" if by_trainer else phase_color(phase)


def _plot(roofs: list[Roof], rows: list[Row]) -> tuple[Plot, str]:
    """Scales with room for points and ridges, most of it to the right, and the unit of the rates."""
    fastest = max(row.point.flop_per_s or 0 for row in rows)
    unit, unit_name = (TERA, "TFLOP/s") if fastest >= 10 * TERA else (GIGA, "GFLOP/s")
    x = [row.point.intensity for row in rows if row.point.intensity]
    y = [row.point.flop_per_s / unit for row in rows if row.point.flop_per_s]
    x += [end for roof in roofs if roof.ridge for end in (roof.ridge, 3 * roof.ridge)]
    y += [roof.matmul.per_s / unit for roof in roofs if roof.matmul]
    # Without arithmetic's ceiling the diagonal has to be in sight where the points are.
    y += [roof.copy.per_s * min(x) / unit for roof in roofs if roof.copy]
    across = svg.logarithmic(x, svg.LEFT, svg.WIDTH - svg.RIGHT, room=_room(x))
    up = svg.logarithmic(y, _HEIGHT - svg.BOTTOM, svg.TOP, room=_room(y))
    return Plot(across, up, unit), unit_name


def _room(values: list[float]) -> float:
    """What makes two powers of ten at least."""
    return max(0.3, (2 - math.log10(max(values) / min(values))) / 2)


def _mark(section: Section, row: Row, roofs: list[Roof], plot: Plot, by_trainer: bool) -> Markup:
    point, look = row.point, LOOKS[roofs.index(section.roof) % len(LOOKS)]
    return svg.mark(
        _symbol(point.phase),
        plot.x.at(point.intensity or 0),
        plot.y.at((point.flop_per_s or 0) / plot.unit),
        trainer_color(section.trainer) if by_trainer else phase_color(point.phase),
        *_title(section, row),
        is_open=look.is_open,
        radius=look.radius,
    )


def _title(section: Section, row: Row) -> list[str]:
    point = row.point
    taken = "DRAM bytes, kernel time" if point.source == COUNTERS else "the ledger's bytes, wall time"
    return [
        point.phase,
        *section.label.split(", ", 1),
        f"{section.roof.device}, {section.roof.precision}",
        f"{scaled(point.intensity)} FLOP/byte",
        f"{flop_rate(point.flop_per_s or 0)}{_share(row.matmul_pct, 'matmul')}",
        f"{scaled(point.bytes_per_s, GIB)} GiB/s{_share(row.copy_pct, 'copy')}",
        taken,
    ]


def _share(percent: float | None, ceiling: str) -> str:
    return "" if percent is None else f", {scaled(percent)} % of {ceiling}"
