"""Memory against time: one point for each trainer at each place, the points of a place joined."""

from typing import Any

from markupsafe import Markup

from dpprof.figures.names import PEAK, STEP
from dpprof.reports import svg
from dpprof.reports.colors import trainer_color, trainer_symbol
from dpprof.reports.comparison.rows import ModelRows, PlaceRows, Row
from dpprof.vocabulary.formats import fixed, number

# Figures further apart than this are drawn by their logarithms.
_FAR_APART = 12.0
_NAMED_PLACES = 6
_LONGEST_NAME = 14


def memory_against_time(group: ModelRows) -> Markup | None:
    """The chart of one model; None unless two cells have both figures."""
    places = [(place, [row for row in place.rows if _has_both(row)]) for place in group.places]
    places = [(place, rows) for place, rows in places if rows]
    found = [row.cell.figures for _, rows in places for row in rows]
    if len(found) < 2:
        return None
    times, peaks = ([figures[name] for figures in found] for name in (STEP, PEAK))
    x = svg.plot_x(times, is_log=max(times) > _FAR_APART * min(times))
    y = svg.plot_y(peaks, is_log=max(peaks) > _FAR_APART * min(peaks))
    drawn = [svg.axes(x, y, _title("step time [ms]", x), _title("peak memory [MiB]", y))]
    drawn += [_joined(place, rows, x, y) for place, rows in places]
    drawn += [_point(group, place, row, x, y) for place, rows in places for row in rows]
    if 1 < len(places) <= _NAMED_PLACES:
        drawn += _names(places, x, y)
    return svg.chart(f"{group.model.name}: peak memory against step time", *drawn)


def _has_both(row: Row) -> bool:
    figures = row.cell.figures
    return bool(row.cell.finished and figures.get(STEP) and figures.get(PEAK))


def _at(row: Row, x: svg.Scale, y: svg.Scale) -> tuple[float, float]:
    return x.at(row.cell.figures[STEP]), y.at(row.cell.figures[PEAK])


def _title(text: str, scale: svg.Scale) -> str:
    return f"{text}, logarithmic" if scale.is_log else text


def _joined(place: PlaceRows, rows: list[Row], x: svg.Scale, y: svg.Scale) -> Markup:
    points = sorted(_at(row, x, y) for row in rows)
    return svg.line(points, class_="line join", **_settings(place))


def _point(group: ModelRows, place: PlaceRows, row: Row, x: svg.Scale, y: svg.Scale) -> Markup:
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


def _names(places: list[tuple[PlaceRows, list[Row]]], x: svg.Scale, y: svg.Scale) -> list[Markup]:
    """The places' names beside their last points, where they neither touch nor stick out."""
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
