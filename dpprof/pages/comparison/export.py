"""A comparison as tables for other programs: a row per run, every figure by metric name."""

from typing import Any

from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.data import ComparisonData, compute
from dpprof.findings.comparison.rows import CellRow
from dpprof.pages.comparison.summary import to_markdown
from dpprof.record.figures.names import MOVED, PEAK, SAMPLES, STEP

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


def table(data: ComparisonData) -> dict[str, list[Any]]:
    """Return the headline figures by column, a row per cell."""
    rows = [_headline(row, data.comparison) for row in data.rows]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _headline(row: CellRow, comparison: Comparison) -> dict[str, Any]:
    cell, time = row.cell, row.bars["step_time"]
    figures = cell.figures if cell.finished else {}
    named = ("seq_len", "batch_size", *(name for name in comparison.varying if name != "precision"))
    return {
        "model": row.model.label,
        "precision": comparison.precision(cell),
        **{name: cell.settings.get(name) for name in named},
        "trainer": cell.trainer,
        "status": cell.failure or cell.status,
        "step_ms": figures.get(STEP),
        "step_time_ratio": time.ratio,
        "disturbed": "yes" if time.is_disturbed else "",
        "peak_mib": figures.get(PEAK),
        "peak_ratio": row.bars["peak_memory"].ratio,
        "moved_mib": figures.get(MOVED),
        "samples_per_s": figures.get(SAMPLES),
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
