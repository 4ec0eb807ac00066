"""The charts of growth: peak memory and step time along the batch and along the sequence."""

from dataclasses import dataclass

from markupsafe import Markup

from dpprof.figures.names import PEAK, STEP
from dpprof.reports import svg
from dpprof.reports.colors import trainer_color, trainer_symbol
from dpprof.reports.comparison.growth import Line
from dpprof.vocabulary.formats import number

_TITLES = {PEAK: "peak memory [MiB]", STEP: "step time [ms]", "batch_size": "batch", "seq_len": "sequence"}
_UNITS = {PEAK: "MiB", STEP: "ms"}


@dataclass(frozen=True)
class GrowthChart:
    """One figure of one model along one setting, and the dash of each place by its name."""

    model: str
    chart: Markup
    dashes: dict[str, str]


def growth_charts(lines: list[Line]) -> list[GrowthChart]:
    """Measured points joined by lines: a colour and a symbol for each trainer, a dash for each place."""
    panels: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        panels.setdefault((line.model, line.along, line.metric), []).append(line)
    return [_chart(*panel, drawn) for panel, drawn in panels.items()]


def _chart(model: str, along: str, metric: str, lines: list[Line]) -> GrowthChart:
    title = f"{model}: {_TITLES[metric]} against {_TITLES[along]}"
    values = sorted({value for line in lines for value in line.x})
    x = svg.plot_x(values)
    y = svg.plot_y([value for line in lines for value in line.y])
    places = dict.fromkeys(line.place for line in lines)
    dashes = {place: svg.DASHES[i % len(svg.DASHES)] for i, place in enumerate(places)}
    drawn = [svg.axes(x, y, _TITLES[along], _TITLES[metric], x_ticks=values)]
    drawn += [_line(line, x, y, dashes[line.place]) for line in lines]
    return GrowthChart(model, svg.chart(title, *drawn), dashes)


def _line(line: Line, x: svg.Scale, y: svg.Scale, dash: str) -> Markup:
    points = list(zip(map(x.at, line.x), map(y.at, line.y), strict=True))
    color, symbol = trainer_color(line.trainer), trainer_symbol(line.trainer)
    marks = [
        svg.mark(symbol, *point, color, line.trainer, f"{line.model}, {line.place}", _told(line, at, value))
        for point, at, value in zip(points, line.x, line.y, strict=True)
    ]
    return svg.element("g", svg.line(points, color=color, dash=dash), *marks, data_trainer=line.trainer)


def _told(line: Line, at: int, value: float) -> str:
    return f"{_TITLES[line.along]} {at}: {number(value)} {_UNITS[line.metric]}"
