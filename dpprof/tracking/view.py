"""A view of MLflow's runs page that is there when the page opens: columns, charts, filter and order.

MLflow keeps a view that was shared in a tag of the experiment, and the link to it ends with the tag's name.
What the tag holds is not documented: keys and values here are those that the page of MLflow 3.17 writes.
Runs are listed without their parents if a filter is set and the order is not that of time. Filter and order
must be in the view: the page forgets a view whose link has them.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dpprof.config.estimating import ESTIMATE
from dpprof.figures.names import FLOOR, MOVED, NEEDED, PEAK, SAMPLES, STEP, ratio_name
from dpprof.tracking.store import PARENT_TAG, SHORT_PARAM

_TAG = "mlflow.sharedViewState."
# The key of the image that every run with a timeline has.
TIMELINE = "memory_timeline"
# The columns of the table with their widths in pixels: no header is cut but those of the ratios.
_COLUMNS = {PEAK: 210, NEEDED: 230, STEP: 180, FLOOR: 170, SAMPLES: 190, MOVED: 150}
_COLUMNS |= {ratio_name(name): 150 for name in (PEAK, STEP, MOVED)}
# What memory is set against, in words: the first that is known.
_AGAINST = {STEP: "step time", FLOOR: "least step time", MOVED: "bytes moved"}
# So many bars are readable in a low chart.
_FEW = 8


@dataclass(frozen=True)
class Section:
    """Charts under one title, so many in a row, each so many pixels high."""

    title: str
    charts: Sequence[Mapping[str, object]]
    columns: int
    height: int


@dataclass(frozen=True)
class View:
    """The runs of one parent side by side.

    `varied` are the params in which they differ beside the trainer, `known` the names of their metrics.
    """

    num_runs: int
    varied: Sequence[str]
    known: Collection[str]
    is_estimate: bool

    def tag(self, parent: str) -> tuple[str, str]:
        """Name and value of the experiment's tag that holds the view of a parent's runs."""
        return _TAG + parent, json.dumps(self._state(parent))

    def _state(self, parent: str) -> dict[str, object]:
        sections: list[dict[str, object]] = []
        charts: list[dict[str, object]] = []
        for i, section in enumerate(self._sections()):
            shown = {"display": True, "columns": section.columns, "cardHeight": section.height}
            sections.append({"uuid": f"section-{i}", "name": section.title, "isReordered": False, **shown})
            charts += [self._card(chart, len(charts) + j, i) for j, chart in enumerate(section.charts)]
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
            "isAccordionReordered": True,  # the sections that the page makes for all other metrics come last
            "compareRunSections": sections,
            "compareRunCharts": charts,
        }

    def _card(self, chart: Mapping[str, object], number: int, section: int) -> dict[str, object]:
        place = {"uuid": f"chart-{number}", "metricSectionId": f"section-{section}"}
        return {**place, "runsCountToCompare": self.num_runs, "deleted": False, "isGenerated": False, **chart}

    def _sections(self) -> list[Section]:
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
            Section(f"Memory and {_AGAINST[against]}", bars, 2, height),
            Section(f"Memory against {_AGAINST[against]}", [scatter, parallel], 2, 400),
            Section("Memory through a step", [images], 1, 600),
        ]

    def _metric(self, name: str) -> str:
        return f"{ESTIMATE}/{name}" if self.is_estimate else name

    def _column(self, name: str) -> str:
        return f"metrics.`{self._metric(name)}`"
