"""The comparison page: one self-contained HTML file. First figures (tiles, charts, bars), then words.

Charts are inline SVG, bars and tables plain HTML, so that the page can be read without JavaScript, on a phone
and in print; scripts add the filters, the sorting, and the two memory timelines that the reader chooses.
"""

import re

from dpprof.figures.names import SAMPLES, STEP
from dpprof.reports import html, svg
from dpprof.reports.comparison import tiles
from dpprof.reports.comparison.bars import MEASURES
from dpprof.reports.comparison.counter_ratios import EXPECTED
from dpprof.reports.comparison.data import ComparisonData
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.growth_chart import growth_charts
from dpprof.reports.comparison.markdown import percent
from dpprof.reports.comparison.scatter import memory_against_time
from dpprof.vocabulary.trainers import STANDARD

# What a reader wants to be told first.
_FIRST = ("Use", "Estimate", "Fits", "Memory", "Time", "Largest batch", "No verdict")


def render(data: ComparisonData) -> str:
    """The page as HTML. Every name from outside is escaped."""
    charts = [(group.model.label, memory_against_time(group)) for group in data.models]
    return html.render(
        "comparison.html",
        data=data,
        advice=advice(data.findings),
        tiles=tiles.compute(data),
        trainers=[row.trainer for row in data.trainers],
        scatters=[(name, chart) for name, chart in charts if chart is not None],
        standard=STANDARD,
        measures=MEASURES,
        samples=SAMPLES,
        step_metric=STEP,
        growth_charts=growth_charts(data.growth),
        dash_key=lambda dash: svg.key(None, "var(--ink)", dash=dash),
        percent=percent,
        counter_levels=[expected.name for expected in EXPECTED.values()],
    )


def advice(findings: list[Finding[object]]) -> Finding[object] | None:
    """The finding to open with, cut to its first sentence; None if none of them says whom to train with."""
    topics = {finding.topic: finding for finding in reversed(findings)}
    found = next((topics[topic] for topic in _FIRST if topic in topics), None)
    if found is None:
        return None
    return Finding(found.topic, re.split(r"(?<=\.) (?=[A-Z])", found.text)[0], found.data)
