"""The ceilings on the chart: a diagonal that the copy sets, and a flat part that the matrix product sets."""

import html
import math
from typing import Any

import plotly.graph_objects as go

from dpprof.reports.roofline.roofs import Roof
from dpprof.reports.roofline.texts import flop_rate, scaled
from dpprof.vocabulary.units import GIB

# Logarithms of where the axes begin and end.
Ranges = tuple[tuple[float, float], tuple[float, float]]
# Of each roof in turn: the line, what its points add to their symbols, and both in words.
LOOKS = (
    ("solid", "", "solid line, full symbols"),
    ("dash", "-open", "dashed line, open symbols"),
    ("dot", "-dot", "dotted line, full symbols with a dot"),
    ("dashdot", "-open-dot", "dash-dotted line, open symbols with a dot"),
)
# A text at a ceiling; on logarithmic axes it is placed by logarithms.
_NOTE: dict[str, Any] = {"showarrow": False, "font": {"size": 11}, "align": "right"}


def draw_roof(figure: go.Figure, roofs: list[Roof], i: int, ranges: Ranges, unit: float) -> None:
    """Draw one of several roofs, in so many FLOP/s: the ceilings that are known, and their figures."""
    roof, (left, right) = roofs[i], ranges[0]
    copy, flat = _heights(roof, unit)
    if copy is None and flat is None:
        return
    ridge = right if copy is None or flat is None else flat - copy
    ends = []
    if copy is not None:
        ends += [(left, left + copy), (ridge, ridge + copy)]
    if flat is not None:
        ends += [(left if copy is None else ridge, flat), (right, flat)]
    figure.add_scatter(
        x=[10**x for x, _ in ends],
        y=[10**y for _, y in ends],
        mode="lines",
        line={"color": "#222222", "width": 1.5, "dash": LOOKS[i % len(LOOKS)][0]},
        hoverinfo="skip",
        showlegend=False,
    )
    _name(figure, roofs, i, ranges, unit)


def _heights(roof: Roof, unit: float) -> tuple[float | None, float | None]:
    """Logarithms: what the diagonal adds to that of a FLOP per byte, and the height of the flat part."""
    copy = None if roof.copy is None else math.log10(roof.copy.per_s / unit)
    return copy, None if roof.matmul is None else math.log10(roof.matmul.per_s / unit)


def _name(figure: go.Figure, roofs: list[Roof], i: int, ranges: Ranges, unit: float) -> None:
    """The copy's figure on the diagonal, the matrix product's above or below the end of the flat part."""
    roof, (left, right), (bottom, top) = roofs[i], *ranges
    copy, flat = _heights(roof, unit)
    # A copy's ceiling is its device's: it is named once for all precisions.
    is_first = all(other.device != roof.device for other in roofs[:i])
    if copy is not None and roof.copy is not None and is_first:
        seen_from = max(left, bottom - copy)
        seen_to = min(right if flat is None else flat - copy, right, top - copy)
        at = seen_from + (0.35 + 0.2 * (i % 3)) * (seen_to - seen_from)
        text = f"copy {scaled(roof.copy.per_s, GIB)} GiB/s{_of_device(roofs, roof)}"
        figure.add_annotation(x=at, y=at + copy, text=text, bgcolor="rgba(255,255,255,0.85)", **_NOTE)
    if flat is not None and roof.matmul is not None:
        precision = f" {roof.precision}" if len(roofs) > 1 else ""
        text = f"matmul{precision} {flop_rate(roof.matmul.per_s)}{_of_device(roofs, roof)}"
        side = "top" if i % 2 else "bottom"
        figure.add_annotation(x=right, y=flat, text=text, xanchor="right", yanchor=side, **_NOTE)


def _of_device(roofs: list[Roof], roof: Roof) -> str:
    several = len({other.device for other in roofs}) > 1
    return f"<br>{html.escape(roof.device, quote=False)}" if several else ""
