"""How the experiments of a comparison were measured."""

from collections.abc import Iterable

from dpprof.reports.comparison.comparison import Comparison


def how_measured(comparison: Comparison) -> list[dict[str, str]]:
    """A row of texts for each source: what all its cells share is given once."""
    rows = []
    for source in comparison.sources:
        cells = [cell for cell in comparison.cells if cell.source == source]
        row = {"source": source, "runs of a cell": _values(len(cell.runs) for cell in cells)}
        row |= {
            name.replace("_", " "): _values(cell.settings[name] for cell in cells)
            for name in ("warmup_steps", "measured_steps", "passes", "device", "precision")
        }
        environments = [environment for cell in cells for environment in cell.environments]
        row |= {
            name.replace("_", " "): _values(environment.get(name, "") for environment in environments)
            for name in dict.fromkeys(name for environment in environments for name in environment)
        }
        rows.append(row)
    return rows


def _values(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))
