"""Charts of the comparison page: memory against time, and growth along batch and sequence."""

from collections.abc import Iterable

from markupsafe import Markup

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.growth import Line
from dpprof.findings.comparison.models import Model
from dpprof.findings.comparison.places import full_name
from dpprof.pages import document as doc
from dpprof.pages import svg
from dpprof.record.figures.names import COLUMNS, PEAK, STEP
from dpprof.vocabulary.colors import trainer_color, trainer_symbol
from dpprof.vocabulary.formats import fixed, number
from dpprof.vocabulary.grouping import grouped

# Ratio of figures from which axes are logarithmic.
_FAR_APART = 12.0
_NAMED_PLACES = 6
_LONGEST_NAME = 14


def memory_against_time(comparison: Comparison, model: Model) -> Markup | None:
    """Return the chart of one model; None unless two cells have both figures."""
    places = [[cell for cell in place if _has_both(cell)] for place in comparison.by_model[model]]
    places = [place for place in places if place]
    found = [cell.figures for place in places for cell in place]
    if len(found) < 2:
        return None
    times, peaks = ([figures[name] for figures in found] for name in (STEP, PEAK))
    x = svg.plot_x(times, is_log=max(times) > _FAR_APART * min(times))
    y = svg.plot_y(peaks, is_log=max(peaks) > _FAR_APART * min(peaks))
    drawn = [svg.axes(x, y, _axis_title(STEP, x), _axis_title(PEAK, y))]
    drawn += [svg.line(sorted(_at(cell, x, y) for cell in place), class_="line join") for place in places]
    drawn += [_point(comparison, cell, x, y) for place in places for cell in place]
    if 1 < len(places) <= _NAMED_PLACES:
        drawn += _names(comparison, places, x, y)
    return svg.chart(f"{model.name}: peak memory against step time", *drawn)


def _has_both(cell: Cell) -> bool:
    return bool(cell.finished and cell.figures.get(STEP) and cell.figures.get(PEAK))


def _at(cell: Cell, x: svg.Scale, y: svg.Scale) -> tuple[float, float]:
    return x.at(cell.figures[STEP]), y.at(cell.figures[PEAK])


def _axis_title(name: str, scale: svg.Scale) -> str:
    return f"{COLUMNS[name].title}, logarithmic" if scale.is_log else COLUMNS[name].title


def _point(comparison: Comparison, cell: Cell, x: svg.Scale, y: svg.Scale) -> Markup:
    title = [cell.trainer, full_name(comparison, cell)]
    for name in (PEAK, STEP):
        ratio = comparison.ratio(cell, name)
        times = "" if ratio is None else f", {fixed(ratio, 2)} x standard"
        title.append(f"{number(cell.figures[name])} {COLUMNS[name].unit}{times}")
    color = trainer_color(cell.trainer)
    return svg.mark(trainer_symbol(cell.trainer), *_at(cell, x, y), color, *title)


def _names(comparison: Comparison, places: list[list[Cell]], x: svg.Scale, y: svg.Scale) -> list[Markup]:
    """Label places at their last points, where labels neither touch nor leave the chart."""
    drawn: list[Markup] = []
    taken: list[float] = []
    for place in places:
        name = comparison.place_name(place[0])
        name = name.replace("batch ", "b").replace("sequence ", "s").replace(", ", " ")
        right, height = max(_at(cell, x, y) for cell in place)
        starts = right + 2 * svg.RADIUS
        fits = len(name) <= _LONGEST_NAME and starts + svg.LETTER * len(name) <= svg.WIDTH
        if fits and all(abs(height - other) > 16 for other in taken):
            drawn.append(svg.label(starts, height + 4.5, name, class_="tick"))
            taken.append(height)
    return drawn


_ALONG = {"batch_size": "batch", "seq_len": "sequence"}


def growth_charts(lines: Iterable[Line]) -> list[doc.Chart]:
    """Draw measured points joined by lines: colour and symbol by trainer, dash by place."""
    panels = grouped(lines, lambda line: (line.model, line.along, line.metric))
    return [_growth_chart(*panel, drawn) for panel, drawn in panels.items()]


def _growth_chart(model: str, along: str, metric: str, lines: list[Line]) -> doc.Chart:
    title = f"{model}: {COLUMNS[metric].title} against {_ALONG[along]}"
    values = sorted({value for line in lines for value in line.x})
    x = svg.plot_x(values)
    y = svg.plot_y([value for line in lines for value in line.y])
    places = dict.fromkeys(line.place for line in lines)
    dashes = {place: svg.DASHES[i % len(svg.DASHES)] for i, place in enumerate(places)}
    drawn = [svg.axes(x, y, _ALONG[along], COLUMNS[metric].title, x_ticks=values)]
    drawn += [_drawn_line(line, x, y, dashes[line.place]) for line in lines]
    trainers = dict.fromkeys(line.trainer for line in lines)
    legend: list[doc.Inline] = [doc.TrainerName(trainer) for trainer in trainers]
    if len(dashes) > 1:
        legend += [doc.Keyed(place, svg.key(None, "var(--ink)", dash=dash)) for place, dash in dashes.items()]
    return doc.Chart(svg.chart(title, *drawn), legend, title)


def _drawn_line(line: Line, x: svg.Scale, y: svg.Scale, dash: str) -> Markup:
    points = list(zip(map(x.at, line.x), map(y.at, line.y), strict=True))
    color, symbol = trainer_color(line.trainer), trainer_symbol(line.trainer)
    marks = [
        svg.mark(
            symbol,
            *point,
            color,
            line.trainer,
            f"{line.model}, {line.place}",
            f"{_ALONG[line.along]} {at}: {number(value)} {COLUMNS[line.metric].unit}",
        )
        for point, at, value in zip(points, line.x, line.y, strict=True)
    ]
    return svg.element("g", svg.line(points, color=color, dash=dash), *marks)
