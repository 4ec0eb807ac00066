"""Charts as inline SVG: scales, axes, lines, marks and labels.

Texts are escaped. Colours of text, grid and background come from the page's CSS (`base.html`), so that charts
follow dark mode and print.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

# Pixels of a chart and of its margins. A page shows it narrower on a phone.
WIDTH, HEIGHT = 520, 340
LEFT, RIGHT, TOP, BOTTOM = 66, 24, 34, 48
# Half a mark's width, and mean width of a letter.
RADIUS = 6.0
LETTER = 7.2
_MOST_TICKS = 6
_STEPS = (1, 2, 5, 10)
_ON_THE_EDGE = 1e-9
# Marks as paths round (0, 0) in units of their radius.
SYMBOLS = {
    "circle": "M-1,0a1,1 0 1,0 2,0a1,1 0 1,0 -2,0Z",
    "square": "M-.88,-.88H.88V.88H-.88Z",
    "diamond": "M0,-1.25L1.25,0L0,1.25L-1.25,0Z",
    "triangle": "M0,-1.2L1.15,.85H-1.15Z",
    "cross": "M-.4,-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    "x": "M-1.1,-.6L-.6,-1.1L0,-.5L.6,-1.1L1.1,-.6L.5,0L1.1,.6L.6,1.1L0,.5L-.6,1.1L-1.1,.6L-.5,0Z",
    "star": "M0,-1.3L.36,-.42L1.24,-.4L.56,.18L.8,1.05L0,.55L-.8,1.05L-.56,.18L-1.24,-.4L-.36,-.42Z",
    "down": "M0,1.2L1.15,-.85H-1.15Z",
    "left": "M-1.2,0L.85,-1.15V1.15Z",
    "right": "M1.2,0L-.85,-1.15V1.15Z",
    "hourglass": "M-1.1,-1.1H1.1L-1.1,1.1H1.1Z",
    "bow": "M-1.1,-1.1V1.1L1.1,-1.1V1.1Z",
}
DASHES = ("", "7 4", "2 3", "9 3 2 3", "14 5")


@dataclass(frozen=True)
class Scale:
    """Maps values from `low` to `high` to the pixels `start` to `end`, optionally by logarithm."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values; on a log scale powers of ten, with 2 and 5 between if these are few."""
        ticks = _log_ticks(self.low, self.high) if self.is_log else []
        if len(ticks) > 1:
            return ticks
        step = _step(self.high - self.low)
        first = math.ceil(self.low / step - _ON_THE_EDGE)
        last = math.floor(self.high / step + _ON_THE_EDGE)
        return [float(f"{i * step:.10g}") for i in range(first, last + 1)]


def from_zero(values: Iterable[float], start: float, end: float) -> Scale:
    """Return a scale from zero to a round value above all."""
    highest = max(values, default=0.0) or 1.0
    step = _step(1.02 * highest)
    return Scale(0.0, step * math.ceil(1.02 * highest / step), start, end)


def logarithmic(values: Sequence[float], start: float, end: float, *, room: float = 0.1) -> Scale:
    """Return a logarithmic scale round positive values, with `room` on both sides in powers of ten."""
    return Scale(min(values) / 10**room, max(values) * 10**room, start, end, is_log=True)


def plot_x(values: Sequence[float], *, is_log: bool = False) -> Scale:
    """Return the horizontal scale of a chart of standard size."""
    return (logarithmic if is_log else from_zero)(values, LEFT, WIDTH - RIGHT)


def plot_y(values: Sequence[float], *, is_log: bool = False) -> Scale:
    """Return the vertical scale of a chart of standard size."""
    return (logarithmic if is_log else from_zero)(values, HEIGHT - BOTTOM, TOP)


def element(tag: str, *children: str | Markup, **attributes: object) -> Markup:
    """Return an element; `class_` is the attribute `class`, `font_size` is `font-size`."""
    named = [
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), _short(value))
        for name, value in attributes.items()
        if value is not None
    ]
    inside = Markup("").join(children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), Markup("").join(named), inside)


def chart(label: str, *children: Markup, name: str | None = None, height: float = HEIGHT) -> Markup:
    """Return the whole chart, with a label for screen readers."""
    box = f"0 0 {WIDTH} {_short(height)}"
    return element("svg", *children, id=name, class_="chart", viewBox=box, role="img", aria_label=label)


def axes(x: Scale, y: Scale, x_title: str, y_title: str, *, x_ticks: Sequence[float] | None = None) -> Markup:
    """Draw grid lines, ticks and titles of both axes, leaving out labels that would touch."""
    bottom, left = y.start, x.start
    drawn: list[Markup] = []
    free = -math.inf
    for value in x.ticks() if x_ticks is None else x_ticks:
        at, half = x.at(value), LETTER * len(tick(value)) / 2
        drawn.append(element("line", x1=at, x2=at, y1=bottom, y2=y.end, class_="grid"))
        if at - half > free:
            drawn.append(label(at, bottom + 18, tick(value), anchor="middle", class_="tick"))
            free = at + half + LETTER
    for value in y.ticks():
        at = y.at(value)
        drawn.append(element("line", x1=left, x2=x.end, y1=at, y2=at, class_="grid"))
        drawn.append(label(left - 7, at + 4.5, tick(value), anchor="end", class_="tick"))
    drawn.append(
        element("path", d=f"M{_short(left)},{_short(y.end)}V{_short(bottom)}H{_short(x.end)}", class_="axis")
    )
    drawn.append(label((left + x.end) / 2, bottom + 40, x_title, anchor="middle"))
    drawn.append(label(0, y.end - 18, y_title))
    return element("g", *drawn, class_="axes")


def label(x: float, y: float, text: str, *, anchor: str = "start", **attributes: object) -> Markup:
    """Draw a text at a point of its baseline."""
    return element("text", text, x=x, y=y, text_anchor=None if anchor == "start" else anchor, **attributes)


def line(
    points: Iterable[tuple[float, float]], *, color: str | None = None, dash: str = "", **attributes: object
) -> Markup:
    """Draw a line through pixels; the default colour is that of text."""
    through = "M" + "L".join(f"{_short(x)},{_short(y)}" for x, y in points)
    look = {"class_": "line", "style": color and f"stroke: {color}", "stroke_dasharray": dash or None}
    return element("path", d=through, **(look | attributes))


def mark(
    symbol: str,
    x: float,
    y: float,
    color: str,
    *title: str,
    is_open: bool = False,
    radius: float = RADIUS,
    **attributes: object,
) -> Markup:
    """Draw a symbol at a pixel, with lines of `title` as tooltip; an open one has the background's fill."""
    place = f"translate({_short(x)} {_short(y)}) scale({_short(radius)})"
    children = [element("title", "\n".join(title))] if title else []
    look = f"fill: var(--page); stroke: {color}" if is_open else f"fill: {color}"
    kind = "mark open" if is_open else "mark"
    return element(
        "path", *children, d=SYMBOLS[symbol], transform=place, class_=kind, style=look, **attributes
    )


def key(symbol: str | None, color: str, *, dash: str | None = None) -> Markup:
    """Return a legend's picture: a symbol, a piece of line if `dash` is given, or both."""
    drawn = [] if dash is None else [line([(0, 8), (28, 8)], color=color, dash=dash)]
    width = 16 if dash is None else 28
    if symbol is not None:
        drawn.append(mark(symbol, width / 2, 8, color))
    return element(
        "svg", *drawn, class_="key", viewBox=f"0 0 {width} 16", width=width, height=16, aria_hidden="true"
    )


def swatch(color: str) -> Markup:
    """Return a legend's piece of colour."""
    return Markup('<span class="swatch" style="background: {}"></span>').format(color)


def tick(value: float) -> str:
    """Format a value on an axis."""
    return f"{value:,.10g}"


def _short(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def _step(span: float) -> float:
    """Return the least of 1, 2, 5, 10, 20, ... that gives at most `_MOST_TICKS` steps."""
    least = span / _MOST_TICKS
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least * (1 - _ON_THE_EDGE))


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for between in ((1,), (1, 2, 5)):
        # From text, as 10**-1 * 2 is not quite 0.2.
        found = [float(f"{n}e{power}") for power in range(first, last + 1) for n in between]
        inside = [value for value in found if low * (1 - _ON_THE_EDGE) <= value <= high * (1 + _ON_THE_EDGE)]
        if len(inside) > 2:
            return inside
    return inside
