"""Reports on a whole sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpprof.findings.comparison.data import ComparisonData


@dataclass(frozen=True)
class SweepReports:
    """The reports' `data` and files; description and table are for the sweep's run in MLflow."""

    data: ComparisonData
    description: str
    table: dict[str, list[Any]]
    files: Sequence[Path]
