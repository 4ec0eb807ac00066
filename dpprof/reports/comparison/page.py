"""The comparison page: one self-contained HTML file with the verdict, the bars, the growth and the timelines.

Bars and tables are plain HTML, so that the page can be read without JavaScript, on a phone and in print;
scripts add the filters, the growth chart and the two memory timelines that the reader chooses.
"""

import dataclasses

from plotly.offline import get_plotlyjs

from dpprof.figures.names import SAMPLES, STEP
from dpprof.reports import html
from dpprof.reports.colors import CATEGORY_COLORS, category_color, words
from dpprof.reports.comparison.bars import MEASURES
from dpprof.reports.comparison.counter_ratios import EXPECTED
from dpprof.reports.comparison.data import ComparisonData
from dpprof.reports.comparison.growth_chart import growth_figure
from dpprof.reports.comparison.markdown import percent
from dpprof.vocabulary.order import listed_first


def render(data: ComparisonData) -> str:
    """The page as HTML. Every name from outside is escaped, in the text and in the scripts' data."""
    categories = (name for curves in data.timelines.values() for name in curves.mib)
    drawn = listed_first(categories, CATEGORY_COLORS)
    return html.render(
        "comparison.html",
        data=data,
        measures=MEASURES,
        samples=SAMPLES,
        step_metric=STEP,
        growth_chart=html.chart(growth_figure(data.growth), "growth-chart", with_plotly=False),
        plotly=get_plotlyjs(),
        category_colors={name: category_color(name) for name in drawn},
        category_names={name: words(name) for name in drawn},
        timelines=[dataclasses.asdict(curves) for curves in data.timelines.values()],
        percent=percent,
        counter_levels=[expected.name for expected in EXPECTED.values()],
    )
