"""Charts of the comparison page: memory against time, and growth along batch and sequence."""

from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from dpprof.findings.comparison.growth import Line
from dpprof.findings.comparison.rows import CellRow, ModelRows, PlaceRows
from dpprof.pages import document as doc
from dpprof.pages import svg
from dpprof.record.figures.names import PEAK, STEP
from dpprof.vocabulary.colors import trainer_color, trainer_symbol
from dpprof.vocabulary.formats import fixed, number
from dpprof.vocabulary.grouping import grouped

# Ratio of figures from which axes are logarithmic.
_FAR_APART = 12.0
_NAMED_PLACES = 6
_LONGEST_NAME = 14


def memory_against_time(group: ModelRows) -> Markup | None:
    """Return the chart of one model; None unless two cells have both figures."""
    places = [(place, [row for row in place.rows if _has_both(row)]) for place in group.places]
    places = [(place, rows) for place, rows in places if rows]
    found = [row.cell.figures for _, rows in places for row in rows]
    if len(found) < 2:
        return None
    times, peaks = ([figures[name] for figures in found] for name in (STEP, PEAK))
    x = svg.plot_x(times, is_log=max(times) > _FAR_APART * min(times))
    y = svg.plot_y(peaks, is_log=max(peaks) > _FAR_APART * min(peaks))
    drawn = [svg.axes(x, y, _axis_title("step time [ms]", x), _axis_title("peak memory [MiB]", y))]
    for place, rows in places:
        drawn.append(svg.line(sorted(_at(row, x, y) for row in rows), class_="line join", **_settings(place)))
    drawn += [_point(group, place, row, x, y) for place, rows in places for row in rows]
    if 1 < len(places) <= _NAMED_PLACES:
        drawn += _names(places, x, y)
    return svg.chart(f"{group.model.name}: peak memory against step time", *drawn)


def _has_both(row: CellRow) -> bool:
    figures = row.cell.figures
    return bool(row.cell.finished and figures.get(STEP) and figures.get(PEAK))


def _at(row: CellRow, x: svg.Scale, y: svg.Scale) -> tuple[float, float]:
    return x.at(row.cell.figures[STEP]), y.at(row.cell.figures[PEAK])


def _axis_title(text: str, scale: svg.Scale) -> str:
    return f"{text}, logarithmic" if scale.is_log else text


def _point(group: ModelRows, place: PlaceRows, row: CellRow, x: svg.Scale, y: svg.Scale) -> Markup:
    trainer = row.cell.trainer
    memory, time = row.bars["peak_memory"], row.bars["step_time"]
    title = [
        trainer,
        f"{group.model.name}, {place.name}",
        f"{number(memory.total)} MiB{_ratio(memory.ratio)}",
        f"{number(time.total)} ms{_ratio(time.ratio)}",
    ]
    return svg.mark(
        trainer_symbol(trainer),
        *_at(row, x, y),
        trainer_color(trainer),
        *title,
        data_trainer=trainer,
        **_settings(place),
    )


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f", {fixed(ratio, 2)} x standard"


def _settings(place: PlaceRows) -> dict[str, Any]:
    return {f"data_{name}": place.settings.get(name) for name in ("batch_size", "seq_len")}


def _names(places: list[tuple[PlaceRows, list[CellRow]]], x: svg.Scale, y: svg.Scale) -> list[Markup]:
    """Label places at their last points, where labels neither touch nor leave the chart."""
    drawn: list[Markup] = []
    taken: list[float] = []
    for place, rows in places:
        name = place.name.replace("batch ", "b").replace("sequence ", "s").replace(", ", " ")
        right, height = max(_at(row, x, y) for row in rows)
        starts = right + 2 * svg.RADIUS
        fits = len(name) <= _LONGEST_NAME and starts + svg.LETTER * len(name) <= svg.WIDTH
        if fits and all(abs(height - other) > 16 for other in taken):
            drawn.append(svg.label(starts, height + 4.5, name, class_="tick", **_settings(place)))
            taken.append(height)
    return drawn


_TITLES = {PEAK: "peak memory [MiB]", STEP: "step time [ms]", "batch_size": "batch", "seq_len": "sequence"}
_UNITS = {PEAK: "MiB", STEP: "ms"}


def growth_charts(lines: Iterable[Line]) -> list[doc.Chart]:
    """Draw measured points joined by lines: colour and symbol by trainer, dash by place."""
    panels = grouped(lines, lambda line: (line.model, line.along, line.metric))
    return [_growth_chart(*panel, drawn) for panel, drawn in panels.items()]


def _growth_chart(model: str, along: str, metric: str, lines: list[Line]) -> doc.Chart:
    title = f"{model}: {_TITLES[metric]} against {_TITLES[along]}"
    values = sorted({value for line in lines for value in line.x})
    x = svg.plot_x(values)
    y = svg.plot_y([value for line in lines for value in line.y])
    places = dict.fromkeys(line.place for line in lines)
    dashes = {place: svg.DASHES[i % len(svg.DASHES)] for i, place in enumerate(places)}
    drawn = [svg.axes(x, y, _TITLES[along], _TITLES[metric], x_ticks=values)]
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
            f"{_TITLES[line.along]} {at}: {number(value)} {_UNITS[line.metric]}",
        )
        for point, at, value in zip(points, line.x, line.y, strict=True)
    ]
    return svg.element("g", svg.line(points, color=color, dash=dash), *marks, data_trainer=line.trainer)
