"""The page of a plan: the recommended row, the front, and every figure with what it rests on."""

from markupsafe import Markup

from dpprof.figures.plan.options import Option
from dpprof.reports import html, svg
from dpprof.reports.colors import trainer_color, trainer_symbol
from dpprof.reports.plan.data import PlanData, gib, span
from dpprof.reports.plan.markdown import summary
from dpprof.vocabulary.formats import number
from dpprof.vocabulary.trainers import short_name

# Prices further apart than this are drawn by their logarithms.
_FAR_APART = 5.0


def render(data: PlanData) -> str:
    """One self-contained HTML page."""
    return html.render(
        "plan.html",
        data=data,
        summary=summary(data) if data.recommended else "",
        chart=_chart(data),
        trainers=list(dict.fromkeys(option.trainer for option in data.comparable)),
        span=span,
        gib=gib,
    )


def _chart(data: PlanData) -> Markup | None:
    """Noise against time: one point for each option whose times compare, those on the front joined."""
    known = [option for option in data.comparable if option.price]
    if len(known) < 2:
        return None
    hours = [option.price or 0.0 for option in known]
    noises = [1e3 * option.noise.over_batch for option in known]
    x = svg.plot_x(hours, is_log=max(hours) > _FAR_APART * min(hours))
    y = svg.plot_y(noises, is_log=max(noises) > _FAR_APART * min(noises))
    drawn = [svg.axes(x, y, "hours", "noise / batch, in thousandths")]
    points = [(x.at(one.price or 0.0), y.at(1e3 * one.noise.over_batch)) for one in data.front]
    drawn.append(svg.line(points, class_="line join"))
    drawn += [_point(option, data, x, y) for option in known]
    return svg.chart("Noise in the mean gradient against hours of training", *drawn, name="front")


def _point(option: Option, data: PlanData, x: svg.Scale, y: svg.Scale) -> Markup:
    title = [
        f"{short_name(option.trainer)}, logical batch {option.noise.logical_batch:,}",
        f"{span(option.hours.least, option.hours.most)} hours",
        f"noise / batch {number(1e3 * option.noise.over_batch)} thousandths",
    ]
    return svg.mark(
        trainer_symbol(option.trainer),
        x.at(option.price or 0.0),
        y.at(1e3 * option.noise.over_batch),
        trainer_color(option.trainer),
        *title,
        radius=1.5 * svg.RADIUS if option is data.recommended else svg.RADIUS,
    )
