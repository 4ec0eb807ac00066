"""Prepare a view of MLflow's runs page: columns, charts, filter and order.

MLflow keeps a shared view in a tag of the experiment; its link ends with the tag's name. The tag's content is
not documented: keys and values are those written by MLflow 3.17. Runs are listed without their parents if a
filter is set and the order is not by time. Filter and order must be in the view, as the page drops a view if
the link sets them.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from dpprof.config.estimating import ESTIMATE
from dpprof.record.figures.names import MOVED, NEEDED, PEAK, PREDICTED, SAMPLES, STEP, ratio_name
from dpprof.tracking.store import PARENT_TAG, SHORT_PARAM

_TAG = "mlflow.sharedViewState."
TIMELINE = "memory_timeline"
# Column widths in pixels: only the headers of ratios are cut.
_COLUMNS = {PEAK: 210, NEEDED: 230, STEP: 180, PREDICTED: 190, SAMPLES: 190, MOVED: 150}
_COLUMNS |= {ratio_name(name): 150 for name in (PEAK, STEP, MOVED)}
# Figures to plot memory against; the first known one is used.
_AGAINST = {STEP: "step time", PREDICTED: "predicted step time", MOVED: "bytes moved"}
# Most bars that are readable in a low chart.
_FEW = 8


@dataclass(frozen=True)
class View:
    """The runs of one parent side by side: the params that vary, and the names of known metrics."""

    num_runs: int
    varied: Sequence[str]
    known: Collection[str]
    is_estimate: bool

    def tag(self, parent: str) -> tuple[str, str]:
        """Return name and value of the experiment's tag with the view of a parent's runs."""
        return _TAG + parent, json.dumps(self._state(parent))

    def _state(self, parent: str) -> dict[str, object]:
        sections: list[dict[str, object]] = []
        charts: list[dict[str, object]] = []
        for i, (title, columns_in_a_row, height, shown) in enumerate(self._sections()):
            size = {"columns": columns_in_a_row, "cardHeight": height}
            section = {"uuid": f"section-{i}", "name": title, "isReordered": False, "display": True}
            sections.append(section | size)
            for chart in shown:
                section = {"uuid": f"chart-{len(charts)}", "metricSectionId": f"section-{i}"}
                counted = {"runsCountToCompare": self.num_runs, "deleted": False, "isGenerated": False}
                charts.append({**section, **counted, **chart})
        columns = {self._column(name): width for name, width in _COLUMNS.items() if name in self.known}
        return {
            "searchFilter": f"tags.`{PARENT_TAG}` = '{parent}'",
            "orderByKey": self._column(PEAK),
            "orderByAsc": True,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "selectedColumns": list(columns),
            "columnOrder": list(columns),
            "columnWidths": columns,
            "runsHiddenMode": "SHOW_ALL",
            "hideEmptyCharts": True,
            "isAccordionReordered": True,  # puts MLflow's sections of all other metrics last
            "compareRunSections": sections,
            "compareRunCharts": charts,
        }

    def _sections(self) -> list[tuple[str, int, int, Sequence[Mapping[str, object]]]]:
        """Return charts under one title: how many in a row, how high in pixels, and the charts."""
        against = next((name for name in _AGAINST if name in self.known), MOVED)
        memory, other = self._metric(PEAK), self._metric(against)
        bars: list[Mapping[str, object]] = [{"type": "BAR", "metricKey": name} for name in (memory, other)]
        x, y = ({"key": name, "type": "METRIC"} for name in (other, memory))
        scatter = {"type": "SCATTER", "xaxis": x, "yaxis": y}
        settings = [SHORT_PARAM, *self.varied]
        parallel = {"type": "PARALLEL", "selectedParams": settings, "selectedMetrics": [memory, other]}
        images = {"type": "IMAGE", "imageKeys": [TIMELINE], "step": 0, "showRunParams": False}
        height = 400 if self.num_runs <= _FEW else 500
        return [
            (f"Memory and {_AGAINST[against]}", 2, height, bars),
            (f"Memory against {_AGAINST[against]}", 2, 400, [scatter, parallel]),
            ("Memory through a step", 1, 600, [images]),
        ]

    def _metric(self, name: str) -> str:
        return f"{ESTIMATE}/{name}" if self.is_estimate else name

    def _column(self, name: str) -> str:
        return f"metrics.`{self._metric(name)}`"


_LOCAL = "http://127.0.0.1:5000"
_SQLITE = "sqlite:///"
_DEFAULT_FILE = "mlflow.db"


def runs_page(experiment_id: str, view: str) -> str:
    """Return the part of a URL after the server: an experiment's runs in a view."""
    shown = f"viewStateShareKey={view}&compareRunsMode=CHART&workflowType=machine_learning"
    return f"#/experiments/{experiment_id}/runs?{shown}"


def server(store: str) -> str | None:
    """Return the UI's URL without password; for a database that of `mlflow ui`, else None if unknown."""
    parts = urlsplit(store)
    if parts.scheme in ("http", "https"):
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    return _LOCAL if _is_database(store) else None


def ui_command(store: str) -> str | None:
    """Return the command that starts the UI of a store, if needed."""
    if not _is_database(store):
        return None
    path = Path(store.removeprefix(_SQLITE)) if store.startswith(_SQLITE) else None
    if path is not None and path.resolve() == Path(_DEFAULT_FILE).resolve():
        return f"{_mlflow()} ui"
    # Another database's address may contain a password.
    named = shlex.quote(store) if path is not None else '"$MLFLOW_TRACKING_URI"'
    return f"{_mlflow()} ui --backend-store-uri {named}"


def _mlflow() -> str:
    """Return the `mlflow` command, with its path if its environment is not active."""
    if shutil.which("mlflow"):
        return "mlflow"
    beside = Path(sys.executable).with_name("mlflow")
    return shlex.quote(os.path.relpath(beside)) if beside.exists() else "mlflow"


def _is_database(store: str) -> bool:
    return urlsplit(store).scheme.partition("+")[0] in ("sqlite", "postgresql", "mysql", "mssql")
