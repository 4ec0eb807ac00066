"""The comparison page: one self-contained HTML file. First figures (tiles, charts, bars), then words.

Charts are inline SVG, bars and tables plain HTML, so that it can be read without JavaScript, on a phone and
in print; scripts add filters, sorting, and two memory timelines to choose.
"""

import re

from dpprof.findings.comparison.rows import MEASURES
from dpprof.findings.verdict.finding import Finding
from dpprof.pages import html, svg
from dpprof.pages.comparison import tiles
from dpprof.pages.comparison.charts import growth_charts, memory_against_time
from dpprof.pages.comparison.data import ComparisonData
from dpprof.pages.comparison.tables import measured_table, side_tables
from dpprof.record.figures.names import SAMPLES
from dpprof.vocabulary.trainers import STANDARD

# Topics of the opening finding, most important first.
_FIRST = ("Use", "Estimate", "Fits", "Memory", "Time", "Largest batch", "No verdict")


def render(data: ComparisonData) -> str:
    """Return the page as HTML. Every name from outside is escaped."""
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
        growth_charts=growth_charts(data.growth),
        dash_key=lambda dash: svg.key(None, "var(--ink)", dash=dash),
        side_tables=side_tables(data),
        measured_table=measured_table(data),
    )


def advice(findings: list[Finding]) -> Finding | None:
    """Return the opening finding, cut to its first sentence; None if there is no suitable one."""
    topics = {finding.topic: finding for finding in reversed(findings)}
    found = next((topics[topic] for topic in _FIRST if topic in topics), None)
    if found is None:
        return None
    return Finding(found.topic, re.split(r"(?<=\.) (?=[A-Z])", found.text)[0])
