"""A comparison as tables for other programs: a row per run, every figure by metric name."""

from typing import Any

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.data import compute
from dpprof.pages.comparison.summary import to_markdown
from dpprof.record.figures.names import COLUMNS, ratio_name

FORMATS = ("csv", "json", "markdown")


def export(comparison: Comparison, form: str, foreseen: Comparison | None = None) -> str:
    """Export a comparison as CSV, JSON or Markdown.

    JSON is for `compare --baseline`; Markdown is that of `summary.md`, with `foreseen` estimates.
    """
    if form == "json":
        return comparison.to_json() + "\n"
    if form == "markdown":
        return to_markdown(compute(comparison, foreseen=foreseen))
    import pandas

    return str(pandas.DataFrame(_rows(comparison)).to_csv(index=False))


def table(comparison: Comparison) -> dict[str, list[Any]]:
    """Return the most important figures and their ratios by column, a row per cell."""
    rows = [_headline(comparison, cell) for cell in comparison.cells]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _headline(comparison: Comparison, cell: Cell) -> dict[str, Any]:
    named = ("seq_len", "batch_size", *(name for name in comparison.varying if name != "precision"))
    figures = cell.figures if cell.finished else {}
    compared = [name for name, column in COLUMNS.items() if column.has_ratio]
    return {
        "model": comparison.model(cell).label,
        "precision": comparison.precision(cell),
        **{name: cell.settings.get(name) for name in named},
        "trainer": cell.trainer,
        "status": cell.failure or cell.status,
        "disturbed": "yes" if comparison.is_disturbed_at(cell) else "",
        **{name: figures.get(name) for name in COLUMNS},
        **{ratio_name(name): comparison.ratio(cell, name) for name in compared},
        "gradient_check": cell.gradient_check,
    }


def _rows(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        {
            "source": cell.source,
            "run": run.name,
            "status": run.status,
            "failure": run.failure,
            "reason": run.reason,
            "disturbed": "; ".join(run.disturbances),
            "model": cell.config.model_title,
            "num_parameters": run.num_parameters,
            "weights_dtype": run.weights_dtype,
            "gradient_check": run.gradient_check,
            **cell.settings,
            **run.environment,
            **run.figures,
            **({} if run.privacy is None else {"privacy/notes": "; ".join(run.privacy.notes)}),
            **comparison.ratios(cell, run),
        }
        for cell in comparison.cells
        for run in cell.runs
    ]
