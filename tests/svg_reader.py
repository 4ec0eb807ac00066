"""Reads charts as a person does: a mark's values are read off the ticks of the axes."""

import html
import math
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """A mark by its values: the path of its symbol, its colour, and the lines that hovering shows."""

    x: float
    y: float
    path: str
    color: str
    is_open: bool
    title: list[str]


@dataclass(frozen=True)
class Chart:
    """Marks and lines by their values, the dashes of the lines, the notes, and the range of each axis."""

    marks: list[Mark]
    lines: list[list[tuple[float, float]]]
    dashes: list[str]
    notes: list[str]
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    titles: list[str]


_NUMBER = r"([\d.-]+)"
_TICK = f'<text x="{_NUMBER}" y="{_NUMBER}" text-anchor="(middle|end)" class="tick">([^<]*)<'
_MARK = (
    rf'<path d="([^"]*)" transform="translate\({_NUMBER} {_NUMBER}\) scale\({_NUMBER}\)"'
    r' class="mark( open)?" style="[^"]*(#\w+)"><title>(.*?)</title>'
)


class Axis:
    """The values of pixels, by the logarithms of two ticks."""

    def __init__(self, ticks: list[tuple[float, float]]) -> None:
        (self.pixel, low), (other, high) = ticks[0], ticks[-1]
        self.low = math.log10(low)
        self.per_pixel = (math.log10(high) - self.low) / (other - self.pixel)

    def value(self, pixel: str | float) -> float:
        return float(10 ** (self.low + (float(pixel) - self.pixel) * self.per_pixel))


def read_logarithmic(page: str, name: str) -> Chart | None:
    """The chart of this name on a page; None if there is none."""
    found = re.search(rf'<svg id="{name}".*?</svg>', page, re.S)
    if found is None:
        return None
    svg = found[0]
    ticks = [(float(x), float(y), side, text.replace(",", "")) for x, y, side, text in re.findall(_TICK, svg)]
    across = Axis([(x, float(value)) for x, _, side, value in ticks if side == "middle"])
    up = Axis([(y - 4.5, float(value)) for _, y, side, value in ticks if side == "end"])
    (area,) = re.findall(f'<rect x="{_NUMBER}" y="{_NUMBER}" width="{_NUMBER}" height="{_NUMBER}">', svg)
    left, top, width, height = map(float, area)
    lines = re.findall(r'<path d="(M[^"]*)" class="line"(?: stroke-dasharray="([^"]*)")?>', svg)
    points = [re.findall(f"{_NUMBER},{_NUMBER}", path) for path, _ in lines]
    return Chart(
        marks=[
            Mark(across.value(x), up.value(y), path, color, bool(is_open), html.unescape(title).split("\n"))
            for path, x, y, _, is_open, color, title in re.findall(_MARK, svg, re.S)
        ],
        lines=[[(across.value(x), up.value(y)) for x, y in line] for line in points],
        dashes=[dash for _, dash in lines],
        notes=[html.unescape(text) for text in re.findall(r'class="note">([^<]*)<', svg)],
        x_range=(across.value(left), across.value(left + width)),
        y_range=(up.value(top + height), up.value(top)),
        titles=re.findall(r'<text x="[\d.]+" y="[\d.]+"(?: text-anchor="middle")?>([^<]*)<', svg),
    )
