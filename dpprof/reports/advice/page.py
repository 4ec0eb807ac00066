"""The page of an advice: the answer, every change with its figures, and what they rest on."""

from dpprof.reports import html
from dpprof.reports.advice.data import AdviceData


def render(data: AdviceData) -> str:
    """One self-contained HTML page."""
    return html.render("advice.html", data=data, has_times=bool(data.given.least))
