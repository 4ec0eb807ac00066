"""The ceilings on the chart: a diagonal that the copy sets, and a flat part that the matrix product sets."""

from dataclasses import dataclass

from markupsafe import Markup

from dpprof.reports import svg
from dpprof.reports.roofline.roofs import Roof
from dpprof.reports.roofline.texts import flop_rate, scaled
from dpprof.vocabulary.units import GIB

_LINE_HEIGHT = 16


@dataclass(frozen=True)
class Plot:
    """The chart's scales, and the FLOP/s that its vertical axis counts as one."""

    x: svg.Scale
    y: svg.Scale
    unit: float


@dataclass(frozen=True)
class Look:
    """How a roof's line and the symbols of its points are drawn, and both in words."""

    dash: str
    is_open: bool
    radius: float
    in_words: str


# Of each roof in turn.
LOOKS = (
    Look(svg.DASHES[0], False, svg.RADIUS, "solid line, full symbols"),
    Look(svg.DASHES[1], True, svg.RADIUS, "dashed line, open symbols"),
    Look(svg.DASHES[2], False, svg.RADIUS / 1.6, "dotted line, small full symbols"),
    Look(svg.DASHES[3], True, svg.RADIUS / 1.6, "dash-dotted line, small open symbols"),
)


def draw_roof(roofs: list[Roof], i: int, plot: Plot) -> tuple[Markup, Markup]:
    """One of several roofs: the line of the ceilings that are known, and their figures as texts."""
    roof = roofs[i]
    left, right = plot.x.low, plot.x.high
    copy = None if roof.copy is None else roof.copy.per_s / plot.unit
    flat = None if roof.matmul is None else roof.matmul.per_s / plot.unit
    ends: list[tuple[float, float]] = []
    if copy is not None:
        ridge = right if flat is None else flat / copy
        ends += [(left, left * copy), (ridge, ridge * copy)]
    if flat is not None:
        ends += [(left, flat)] if copy is None else []
        ends += [(right, flat)]
    if not ends:
        return Markup(), Markup()
    pixels = [(plot.x.at(x), plot.y.at(y)) for x, y in ends]
    return svg.line(pixels, dash=LOOKS[i % len(LOOKS)].dash), _names(roofs, i, plot)


def _names(roofs: list[Roof], i: int, plot: Plot) -> Markup:
    """The copy's figure on the diagonal, the matrix product's above or below the end of the flat part."""
    roof, drawn = roofs[i], []
    # A copy's ceiling is its device's: it is named once for all precisions.
    is_first = all(other.device != roof.device for other in roofs[:i])
    if roof.copy is not None and is_first:
        copy = roof.copy.per_s / plot.unit
        seen_from = max(plot.x.low, plot.y.low / copy)
        seen_to = min(roof.ridge or plot.x.high, plot.x.high, plot.y.high / copy)
        at = seen_from * (seen_to / seen_from) ** (0.35 + 0.2 * (i % 3))
        lines = [f"copy {scaled(roof.copy.per_s, GIB)} GiB/s", *_of_device(roofs, roof)]
        x, y = plot.x.at(at), plot.y.at(at * copy)
        if x - svg.LETTER * max(map(len, lines)) - 8 > plot.x.start:
            drawn.append(_note(x - 8, y - 6, lines, "end"))
        else:  # no room left of the diagonal: to its right, below it
            drawn.append(_note(x + 8, y + _LINE_HEIGHT, lines, "start"))
    if roof.matmul is not None:
        precision = f" {roof.precision}" if len(roofs) > 1 else ""
        lines = [f"matmul{precision} {flop_rate(roof.matmul.per_s)}", *_of_device(roofs, roof)]
        height = plot.y.at(roof.matmul.per_s / plot.unit)
        above = height - 6 - _LINE_HEIGHT * (len(lines) - 1)
        drawn.append(_note(plot.x.end, height + _LINE_HEIGHT if i % 2 else above, lines, "end"))
    return Markup().join(drawn)


def _note(x: float, y: float, lines: list[str], anchor: str) -> Markup:
    """Texts below one another, the first of them at a pixel."""
    texts = [
        svg.label(x, y + _LINE_HEIGHT * i, text, anchor=anchor, class_="note") for i, text in enumerate(lines)
    ]
    return Markup().join(texts)


def _of_device(roofs: list[Roof], roof: Roof) -> list[str]:
    return [roof.device] if len({other.device for other in roofs}) > 1 else []
