"""All data of a comparison, computed once for page, Markdown, images and terminal."""

from dataclasses import dataclass

from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.doubts import doubts
from dpprof.findings.verdict.finding import Finding
from dpprof.findings.verdict.verdict import verdict


@dataclass(frozen=True)
class ComparisonData:
    """The findings of a comparison and the data behind them.

    `findings` is the verdict, `doubts` its caveats.
    """

    comparison: Comparison
    findings: list[Finding]
    doubts: list[str]


def compute(comparison: Comparison, foreseen: Comparison | None = None) -> ComparisonData:
    """Compute a comparison's data; `foreseen` are estimates of a larger model, for the verdict only."""
    return ComparisonData(comparison, verdict(comparison, foreseen), doubts(comparison))
