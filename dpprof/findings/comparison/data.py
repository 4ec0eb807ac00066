"""All data of a comparison, computed once for page, Markdown, images and terminal."""

from dataclasses import dataclass

from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.doubts import doubts
from dpprof.findings.comparison.rows import CellRow, ModelRows, rows_by_model
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
    models: list[ModelRows]

    @property
    def rows(self) -> list[CellRow]:
        """Rows of all cells, in the order of the cells."""
        found = {id(row.cell): row for model in self.models for place in model.places for row in place.rows}
        return [found[id(cell)] for cell in self.comparison.cells]


def compute(comparison: Comparison, foreseen: Comparison | None = None) -> ComparisonData:
    """Compute a comparison's data; `foreseen` are estimates of a larger model, for the verdict only."""
    return ComparisonData(
        comparison=comparison,
        findings=verdict(comparison, foreseen),
        doubts=doubts(comparison),
        models=rows_by_model(comparison),
    )
