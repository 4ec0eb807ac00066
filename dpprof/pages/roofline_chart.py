"""Roofline chart: FLOP/s against FLOP/byte, both logarithmic."""

import itertools
import math
from dataclasses import dataclass

from markupsafe import Markup

from dpprof.findings.roofline import COUNTERS, STEP, Roof, Roofline, RooflineRow, Section
from dpprof.pages import svg
from dpprof.pages.document import Chart, Keyed
from dpprof.vocabulary.colors import PHASE_COLORS, trainer_color
from dpprof.vocabulary.formats import number
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import GIB

GIGA, TERA = 1e9, 1e12
_LINE_HEIGHT = 16


@dataclass(frozen=True)
class Plot:
    """The chart's scales, and the FLOP/s of one unit of the vertical axis."""

    x: svg.Scale
    y: svg.Scale
    unit: float


@dataclass(frozen=True)
class Look:
    """Style of a roof's line and its points' symbols, with a description."""

    dash: str
    is_open: bool
    radius: float
    in_words: str


LOOKS = (
    Look(svg.DASHES[0], False, svg.RADIUS, "solid line, full symbols"),
    Look(svg.DASHES[1], True, svg.RADIUS, "dashed line, open symbols"),
    Look(svg.DASHES[2], False, svg.RADIUS / 1.6, "dotted line, small full symbols"),
    Look(svg.DASHES[3], True, svg.RADIUS / 1.6, "dash-dotted line, small open symbols"),
)


def _roof(roof: Roof, look: Look, plot: Plot) -> Markup:
    """Draw the line of one roof's known ceilings."""
    copy = math.inf if roof.copy is None else roof.copy.per_s / plot.unit
    flat = math.inf if roof.matmul is None else roof.matmul.per_s / plot.unit
    ends = [x for x in (plot.x.low, roof.ridge, plot.x.high) if x is not None]
    return svg.line([(plot.x.at(x), plot.y.at(min(x * copy, flat))) for x in ends], dash=look.dash)


def _names(roofs: list[Roof], i: int, plot: Plot) -> list[Markup]:
    """Label the copy ceiling below the diagonal, the matrix product's at the end of the flat part."""
    roof, drawn = roofs[i], []
    of_device = [roof.device] if len({other.device for other in roofs}) > 1 else []
    # The copy ceiling belongs to the device: label it once for all precisions.
    if roof.copy is not None and all(other.device != roof.device for other in roofs[:i]):
        copy = roof.copy.per_s / plot.unit
        seen_from = max(plot.x.low, plot.y.low / copy)
        seen_to = min(roof.ridge or plot.x.high, plot.x.high, plot.y.high / copy)
        at = seen_from * (seen_to / seen_from) ** (0.35 + 0.2 * (i % 3))
        lines = [f"copy {scaled(roof.copy.per_s, GIB)} GiB/s", *of_device]
        drawn += _note(plot.x.at(at) + 8, plot.y.at(at * copy) + _LINE_HEIGHT, lines, "start")
    if roof.matmul is not None:
        precision = f" {roof.precision}" if len(roofs) > 1 else ""
        lines = [f"matmul{precision} {flop_rate(roof.matmul.per_s)}", *of_device]
        height = plot.y.at(roof.matmul.per_s / plot.unit)
        above = height - 6 - _LINE_HEIGHT * (len(lines) - 1)
        drawn += _note(plot.x.end, height + _LINE_HEIGHT if i % 2 else above, lines, "end")
    return drawn


def _note(x: float, y: float, lines: list[str], anchor: str) -> list[Markup]:
    """Draw lines of text, the first of them at a pixel."""
    return [
        svg.label(x, y + _LINE_HEIGHT * i, text, anchor=anchor, class_="note") for i, text in enumerate(lines)
    ]


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


def roofline_chart(roofline: Roofline) -> Chart | None:
    """Draw points under their roofs; None if no phase has FLOPs in a known time.

    Symbols stand for phases; colours for trainers or, with a single one, for phases too.
    """
    rows = ((s, row) for s in roofline.sections for row in s.rows if row.point.phase != STEP)
    drawn = [(s, row) for s, row in rows if None not in (row.point.flop_per_s, row.point.intensity)]
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
    roofs, looks = roofline.roofs, dict(zip(roofline.roofs, itertools.cycle(LOOKS), strict=False))
    lines = [_roof(roof, looks[roof], plot) for roof in roofs if roof.copy or roof.matmul]
    children = [
        svg.element("clipPath", area, id="plot-area"),
        svg.axes(plot.x, plot.y, "FLOP per byte", unit_name),
        svg.element("g", *lines, class_="roofs", clip_path="url(#plot-area)"),
        *(name for i in range(len(roofs)) for name in _names(roofs, i, plot)),
        *(_mark(section, row, looks[section.roof], plot, by_trainer) for section, row in drawn),
    ]
    label = "FLOPs per second against FLOPs per byte of each phase; its figures are in the table of phases"
    legend = [Keyed(short_name(t), svg.key(None, trainer_color(t), dash="")) for t in trainers if by_trainer]
    colors = {phase: "var(--page)" if by_trainer else PHASE_COLORS[phase] for phase in phases}
    keys = [Keyed(phase, svg.key(_symbol(phase), color)) for phase, color in colors.items()]
    return Chart(svg.chart(label, *children, name="roofline", height=_HEIGHT), legend=[*legend, *keys])


def _symbol(phase: str) -> str:
    return _SYMBOLS.get(phase, _ANY_OTHER)


def _plot(roofs: list[Roof], rows: list[RooflineRow]) -> tuple[Plot, str]:
    """Return scales with room for points and ridges, mostly to the right, and the unit of rates."""
    fastest = max(row.point.flop_per_s or 0 for row in rows)
    unit, unit_name = (TERA, "TFLOP/s") if fastest >= 10 * TERA else (GIGA, "GFLOP/s")
    x = [row.point.intensity for row in rows if row.point.intensity]
    y = [row.point.flop_per_s / unit for row in rows if row.point.flop_per_s]
    x += [end for roof in roofs if roof.ridge for end in (roof.ridge, 3 * roof.ridge)]
    y += [roof.matmul.per_s / unit for roof in roofs if roof.matmul]
    # Without a FLOP/s ceiling the diagonal must be visible at the points.
    y += [roof.copy.per_s * min(x) / unit for roof in roofs if roof.copy]
    across = svg.logarithmic(x, svg.LEFT, svg.WIDTH - svg.RIGHT, room=_room(x))
    up = svg.logarithmic(y, _HEIGHT - svg.BOTTOM, svg.TOP, room=_room(y))
    return Plot(across, up, unit), unit_name


def _room(values: list[float]) -> float:
    """Return the room that makes the axis span at least two powers of ten."""
    return max(0.3, (2 - math.log10(max(values) / min(values))) / 2)


def _mark(section: Section, row: RooflineRow, look: Look, plot: Plot, by_trainer: bool) -> Markup:
    point = row.point
    return svg.mark(
        _symbol(point.phase),
        plot.x.at(point.intensity or 0),
        plot.y.at((point.flop_per_s or 0) / plot.unit),
        trainer_color(section.trainer) if by_trainer else PHASE_COLORS[point.phase],
        *_hover(section, row),
        is_open=look.is_open,
        radius=look.radius,
    )


def _hover(section: Section, row: RooflineRow) -> list[str]:
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


def scaled(value: float | None, unit: float = 1) -> str:
    """Format a figure in a unit; empty if None."""
    return number(None if value is None else value / unit)


def flop_rate(flop_per_s: float) -> str:
    """Format FLOP per second in TFLOP/s or GFLOP/s."""
    if flop_per_s >= TERA:
        return f"{scaled(flop_per_s, TERA)} TFLOP/s"
    return f"{scaled(flop_per_s, GIGA)} GFLOP/s"
