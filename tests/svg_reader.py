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
    radius: float
    is_open: bool
    title: list[str]


@dataclass(frozen=True)
class Chart:
    """Marks and lines by their values, the dashes of the lines, the notes, and the range of each axis."""

    marks: list[Mark]
    lines: list[list[tuple[float, float]]]
    dashes: list[str | None]
    notes: list[str]
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    titles: list[str]


class Axis:
    """The values of pixels, by the logarithms of two ticks."""

    def __init__(self, ticks: list[tuple[float, float]]) -> None:
        (self.pixel, low), (other, high) = ticks[0], ticks[-1]
        self.low = math.log10(low)
        self.per_pixel = (math.log10(high) - self.low) / (other - self.pixel)

    def value(self, pixel: float) -> float:
        return float(10 ** (self.low + (pixel - self.pixel) * self.per_pixel))


def read_logarithmic(page: str, name: str) -> Chart | None:
    """The chart of this name on a page; None if there is none."""
    found = re.search(rf'<svg id="{name}".*?</svg>', page, re.S)
    if found is None:
        return None
    svg = found[0]
    ticks = re.findall(
        r'<text x="([\d.-]+)" y="([\d.-]+)" text-anchor="(middle|end)" class="tick">([^<]*)<', svg
    )
    values = [(float(x), float(y), side, float(text.replace(",", ""))) for x, y, side, text in ticks]
    across = Axis([(x, value) for x, _, side, value in values if side == "middle"])
    up = Axis([(y - 4.5, value) for _, y, side, value in values if side == "end"])
    (area,) = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)">', svg)
    left, top, width, height = map(float, area)
    lines = re.findall(r'<path d="(M[^"]*)" class="line"(?: stroke-dasharray="([^"]*)")?>', svg)
    return Chart(
        marks=[_mark(match, across, up) for match in re.finditer(_MARK, svg, re.S)],
        lines=[
            [
                (across.value(float(x)), up.value(float(y)))
                for x, y in re.findall(r"([\d.-]+),([\d.-]+)", path)
            ]
            for path, _ in lines
        ],
        dashes=[dash or None for _, dash in lines],
        notes=[html.unescape(text) for text in re.findall(r'class="note">([^<]*)<', svg)],
        x_range=(across.value(left), across.value(left + width)),
        y_range=(up.value(top + height), up.value(top)),
        titles=re.findall(r'<text x="[\d.]+" y="[\d.]+"(?: text-anchor="middle")?>([^<]*)<', svg),
    )


_MARK = (
    r'<path d="(?P<path>[^"]*)" '
    r'transform="translate\((?P<x>[\d.]+) (?P<y>[\d.]+)\) scale\((?P<radius>[\d.]+)\)"'
    r' class="mark(?P<open> open)?" style="[^"]*(?P<color>#\w+)"><title>(?P<title>.*?)</title>'
)


def _mark(match: re.Match[str], across: Axis, up: Axis) -> Mark:
    return Mark(
        x=across.value(float(match["x"])),
        y=up.value(float(match["y"])),
        path=match["path"],
        color=match["color"],
        radius=float(match["radius"]),
        is_open=match["open"] is not None,
        title=html.unescape(match["title"]).split("\n"),
    )
