"""Writes into a run of an MLflow store, in portions that MLflow takes.

Every call may be repeated: what is there already stays, or is replaced by the same.
"""

import json
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking.multimedia import Image
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS

from dpprof.tracking.store import NOTE_TAG, Store

_MAX_DESCRIPTION = 8000
_MAX_TAG = 5000
_METRICS_PER_BATCH = 1000
_PARAMS_PER_BATCH = 100


class _InParts(MlflowClient):
    """Repeats a part of a call alone. An image is two files with a random name and a tag: were the whole
    repeated, its files would be there twice.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._ask = store.ask

    def log_artifact(self, *args: Any, **kwargs: Any) -> None:
        """Upload a file."""
        self._ask(super().log_artifact, *args, **kwargs)

    def set_tag(self, *args: Any, **kwargs: Any) -> Any:
        """Set a tag."""
        return self._ask(super().set_tag, *args, **kwargs)


class Writer:
    """Writes into the runs of a store. Every method raises TrackingError if the store refuses."""

    def __init__(self, store: Store) -> None:
        self._ask = store.ask
        self._client = store.client
        self._in_parts = _InParts(store)

    def log_params(self, run_id: str, params: Mapping[str, object]) -> None:
        """Log params, except those the run has already: `mlflow run` logs them as they were given."""
        present = self._ask(self._client.get_run, run_id).data.params
        missing = [Param(name, str(value)) for name, value in params.items() if name not in present]
        for i in range(0, len(missing), _PARAMS_PER_BATCH):
            self._ask(self._client.log_batch, run_id, params=missing[i : i + _PARAMS_PER_BATCH])

    def log_metrics(self, run_id: str, values: Iterable[tuple[str, float, int]]) -> None:
        """Log metrics: name, value and step of each."""
        now = int(1000 * time.time())
        listed = [Metric(name, value, now, step) for name, value, step in values]
        for i in range(0, len(listed), _METRICS_PER_BATCH):
            self._ask(self._client.log_batch, run_id, metrics=listed[i : i + _METRICS_PER_BATCH])

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags, cut to what MLflow takes."""
        listed = [RunTag(name, value[:_MAX_TAG]) for name, value in tags.items()]
        self._ask(self._client.log_batch, run_id, tags=listed)

    def describe(self, run_id: str, text: str) -> None:
        """Set the description, cut to what MLflow takes."""
        self._ask(self._client.set_tag, run_id, NOTE_TAG, shorten(text))

    def log_tables(self, run_id: str, tables: Mapping[str, Mapping[str, list[object]]]) -> None:
        """All tables of a run for MLflow's table view, columns by name for each. MLflow's own `log_table`
        adds to what is there; these replace it.
        """
        for name, columns in tables.items():
            rows = [[_shown(value) for value in row] for row in zip(*columns.values(), strict=True)]
            self._ask(self._client.log_dict, run_id, {"columns": list(columns), "data": rows}, name)
        if tables:
            listed = json.dumps([{"path": name, "type": "table"} for name in tables])
            self._ask(self._client.set_tag, run_id, MLFLOW_LOGGED_ARTIFACTS, listed)

    def log_image(self, run_id: str, path: Path, key: str) -> None:
        """An image for MLflow's chart view."""
        self._ask(self._in_parts.log_image, run_id, Image(str(path)), key=key, synchronous=True)

    def log_files(self, run_id: str, files: Iterable[Path], root: Path | None = None) -> None:
        """Files: at the top of the run's artifacts, or each where it lies under the folder `root`."""
        for path in files:
            place = "." if root is None else path.parent.relative_to(root).as_posix()
            self._ask(self._client.log_artifact, run_id, str(path), None if place == "." else place)

    def terminate(self, run_id: str, status: str, end_ms: int | None = None) -> None:
        """Close a run."""
        self._ask(self._client.set_terminated, run_id, status, end_ms)


def shorten(text: str, most: int = _MAX_DESCRIPTION) -> str:
    """Cut a text at a line's end so that it fits, and say that it was cut."""
    if len(text) <= most:
        return text
    note = "\n\n(cut here; the whole is in the artifact `summary.md`)"
    kept = text[: most - len(note)]
    return kept[: kept.rfind("\n")] + note


def _shown(value: object) -> object:
    """A value as JSON has it, which knows no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
