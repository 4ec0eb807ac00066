"""A view of MLflow's runs page that is there when the page opens: columns, charts, filter and order.

MLflow keeps a view that was shared in a tag of the experiment, and the link to it ends with the tag's name.
What the tag holds is not documented: keys and values here are those that the page of MLflow 3.17 writes.
Runs are listed without their parents if a filter is set and the order is not that of time. Filter and order
must be in the view: the page forgets a view whose link has them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpprof.config.flat import ESTIMATE
from dpprof.figures.names import FLOOR, FLOPS, MOVED, NEEDED, PEAK, SAMPLES, STEP, ratio_name
from dpprof.tracking.store import PARENT_TAG

_TAG = "mlflow.sharedViewState."
# The key of the image that every run with a timeline has.
TIMELINE = "memory_timeline"


@dataclass(frozen=True)
class Section:
    """Charts under one title, so many in a row, each so many pixels high."""

    title: str
    charts: Sequence[Mapping[str, object]]
    columns: int
    height: int


@dataclass(frozen=True)
class View:
    """The runs of one parent side by side. `varied` are the params in which they differ."""

    num_runs: int
    varied: Sequence[str]
    is_estimate: bool

    def tag(self, parent: str) -> tuple[str, str]:
        """Name and value of the experiment's tag that holds the view of a parent's runs."""
        return _TAG + parent, json.dumps(self._state(parent))

    def _state(self, parent: str) -> dict[str, Any]:
        sections: list[dict[str, object]] = []
        charts: list[dict[str, object]] = []
        for i, section in enumerate(self._sections()):
            name = {"uuid": f"section-{i}", "name": section.title, "display": True, "isReordered": False}
            sections.append(name | {"columns": section.columns, "cardHeight": section.height})
            for chart in section.charts:
                charts.append(self._card(f"chart-{len(charts)}", f"section-{i}") | dict(chart))
        return {
            "searchFilter": f"tags.`{PARENT_TAG}` = '{parent}'",
            "orderByKey": f"metrics.`{self._metric(PEAK)}`",
            "orderByAsc": True,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "selectedColumns": [f"metrics.`{self._metric(name)}`" for name in self._figures()],
            "runsHiddenMode": "SHOW_ALL",
            "hideEmptyCharts": True,
            "isAccordionReordered": True,
            "compareRunSections": sections,
            "compareRunCharts": charts,
        }

    def _figures(self) -> list[str]:
        times = [NEEDED, FLOOR] if self.is_estimate else [STEP, ratio_name(STEP), SAMPLES]
        return [PEAK, ratio_name(PEAK), *times, MOVED, ratio_name(MOVED), FLOPS]

    def _card(self, uuid: str, section: str) -> dict[str, object]:
        shown: dict[str, object] = {
            "runsCountToCompare": self.num_runs,
            "deleted": False,
            "isGenerated": False,
        }
        return {"uuid": uuid, "metricSectionId": section, **shown}

    def _sections(self) -> list[Section]:
        time = FLOOR if self.is_estimate else STEP
        settings = [
            name for name in ("trainer", *self.varied) if name in ("trainer", "batch_size", "seq_len")
        ]
        metrics = [self._metric(PEAK), self._metric(time)]
        together = {"type": "PARALLEL", "selectedParams": settings, "selectedMetrics": metrics}
        found = [
            Section("Peak memory and step time", [self._bars(PEAK), self._bars(time)], 2, 400),
            Section("Memory against time", [self._scatter(time, PEAK), together], 2, 400),
        ]
        image = {"type": "IMAGE", "imageKeys": [TIMELINE], "step": 0, "showRunParams": False}
        return [*found, Section("Memory through a step", [image], 1, 500)]

    def _bars(self, metric: str) -> dict[str, object]:
        return {"type": "BAR", "metricKey": self._metric(metric)}

    def _scatter(self, x: str, y: str) -> dict[str, object]:
        axes = {"xaxis": x, "yaxis": y}
        return {"type": "SCATTER"} | {
            axis: {"key": self._metric(name), "type": "METRIC"} for axis, name in axes.items()
        }

    def _metric(self, name: str) -> str:
        return f"{ESTIMATE}/{name}" if self.is_estimate else name
