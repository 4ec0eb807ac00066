"""The comparison page: the verdict, a table of answers, then figures of every run, findings, their basis."""

from collections.abc import Iterator

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.data import ComparisonData
from dpprof.findings.comparison.growth import growth
from dpprof.findings.comparison.models import Model
from dpprof.findings.comparison.parts import DRAWN, legend
from dpprof.findings.verdict.finding import Finding
from dpprof.pages import document as doc
from dpprof.pages import html, svg
from dpprof.pages.comparison.answers import answered
from dpprof.pages.comparison.charts import growth_charts, memory_against_time
from dpprof.pages.comparison.tables import explained, measured_table, model_table, side_tables
from dpprof.record.figures.names import PEAK
from dpprof.vocabulary.colors import words

# Topics of the opening finding, most important first.
_FIRST = ("Use", "Estimate", "Fits", "Memory", "Time", "Largest batch", "No verdict")
_FIGURES = (
    "x is the ratio to standard at the same place. The marks `fastest`, `slowest`, `least` and `most` are"
    " for DP trainers only, and only where the difference is larger than the spread. A run is `disturbed`"
    " if other processes used its processors or its steps varied too much: then no trainer is called "
    "fastest, and ratios of step times are unreliable. Bars of one model share one scale. The parts of a "
    "peak come from the ledger; what the allocator held beyond them is `untracked`. Step times are "
    "medians, ± half the interquartile range; each phase has its own median, so their sum may differ from"
    " the step's. Bytes moved are those of eager execution if nothing stayed in a cache. 1 MiB = 2^20 "
    "bytes."
)
_MEASURED = (
    "One clean process for each run. Step times come from unobserved steps. Memory by category and bytes "
    "moved come from the ledger, which follows every tensor in a separate step."
)


def render(data: ComparisonData) -> str:
    """Return the page as HTML. Every name from outside is escaped."""
    return html.page(page(data))


def page(data: ComparisonData) -> doc.Document:
    """Return the page: what a newcomer needs comes first."""
    comparison, first = data.comparison, opening(data.findings)
    parts: list[doc.Part] = []
    if first is not None:
        parts.append(doc.Sentence((doc.Styled(f"{first.topic}."), f" {first.text}"), "answer"))
    parts += [doc.Sentence(doubt, "warning") for doubt in data.doubts]
    parts += answered(comparison)
    models = comparison.by_model
    parts += [chart for model in models for chart in _chart(comparison, model)]
    if models:
        parts.append(doc.Heading("Every run"))
        for model, places in models.items():
            parts += [*_legends([cell for place in places for cell in place]), model_table(comparison, model)]
        parts.append(doc.Sentence(_FIGURES, "note"))
    parts += explained(comparison)
    others = [found for found in data.findings if found is not first]
    if others:
        parts += [doc.Heading("Findings"), *(part for found in others for part in doc.told(found))]
    parts += growth_charts(growth(comparison))
    parts += side_tables(comparison)
    ran = not comparison.cells or any(not cell.is_estimate for cell in comparison.cells)
    parts.append(doc.Heading(f"How this was {'measured' if ran else 'estimated'}"))
    parts += [doc.Sentence(comparison.steps)] if comparison.steps else []
    parts.append(measured_table(comparison))
    parts += [doc.Sentence(_MEASURED, "note")] if ran else []
    return doc.Document(f"{comparison.name}: what differential privacy costs", parts)


def opening(findings: list[Finding]) -> Finding | None:
    """Return the finding that answers most; None if there is no suitable one."""
    topics = {finding.topic: finding for finding in reversed(findings) if not finding.points}
    return next((topics[topic] for topic in _FIRST if topic in topics), None)


def _chart(comparison: Comparison, model: Model) -> Iterator[doc.Chart]:
    chart, places = memory_against_time(comparison, model), comparison.by_model[model]
    if chart is None:
        return
    legend = [doc.TrainerName(name) for name in dict.fromkeys(c.trainer for place in places for c in place)]
    of = f", {model.label}" if len(comparison.by_model) > 1 else ""
    note = "A dotted line joins the trainers at one place." if len(places) > 1 else ""
    yield doc.Chart(chart, legend, f"Memory against time{of}", note)


def _legends(cells: list[Cell]) -> Iterator[doc.Sentence]:
    """Yield the colours of the parts of bars."""
    shown: dict[str, dict[str, str]] = {"peak memory": {}, "step time and bytes moved": {}}
    for name in DRAWN:
        shown["peak memory" if name == PEAK else "step time and bytes moved"] |= legend(cells, name)
    for title, colors in shown.items():
        entries = [doc.Keyed(f"{words(name)} ", svg.swatch(color)) for name, color in colors.items()]
        if entries:
            yield doc.Sentence((doc.Styled(f"{title}: "), *entries), "note")
