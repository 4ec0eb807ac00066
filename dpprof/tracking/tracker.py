"""Run folders become MLflow runs, with params, metrics, tags and artifacts.

The measuring process never talks to MLflow: a run is written when its experiment has ended, with the
experiment's own start and end times.
"""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlflow import get_tracking_uri
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.environment_variables import MLFLOW_EXPERIMENT_ID, MLFLOW_EXPERIMENT_NAME
from mlflow.exceptions import MlflowException
from mlflow.tracking.multimedia import Image

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import ESTIMATE
from dpprof.figures.names import logged, series
from dpprof.figures.results import Result
from dpprof.record.folder import RunFolder, write_text
from dpprof.tracking.address import runs_page, server, ui_command
from dpprof.tracking.contents import params_of, tags_of
from dpprof.tracking.project_run import ProjectRun
from dpprof.tracking.run_names import short_name
from dpprof.tracking.store import KIND_TAG, NOTE_TAG, PARENT_TAG, open_store, translated_errors, user_name
from dpprof.tracking.tables import tables
from dpprof.tracking.view import TIMELINE, View

DEFAULT_EXPERIMENT = "dpprof"
_USER = "mlflow.user"
_SOURCE = {"mlflow.source.name": "dpprof"}
_MAX_DESCRIPTION = 8000
_MAX_TAG = 5000
_METRICS_PER_BATCH = 1000
_PARAMS_PER_BATCH = 100


class Tracker:
    """Writes runs into the store that MLflow's own settings name (`MLFLOW_TRACKING_URI`, ...)."""

    def __init__(self) -> None:
        with translated_errors():
            self._client = open_store()
            self._given = ProjectRun.given(self._client)
            self._experiment_id = self._find_experiment()
        user = self._given.tags.get(_USER) if self._given else user_name()
        self._own_tags = _SOURCE | ({_USER: user} if user else {})

    def _find_experiment(self) -> str:
        is_left = self._given is not None and self._given.is_left
        if MLFLOW_EXPERIMENT_ID.get() and not is_left:
            return str(MLFLOW_EXPERIMENT_ID.get())
        name = MLFLOW_EXPERIMENT_NAME.get() or DEFAULT_EXPERIMENT
        experiment = self._client.get_experiment_by_name(name)
        return str(experiment.experiment_id if experiment else self._client.create_experiment(name))

    def start_parent(self, name: str, kind: str, params: Mapping[str, object], earlier: str | None) -> str:
        """Open the parent run of a sweep and return its id.

        Under `mlflow run` that is the run that MLflow made, unless it is left (`project_run.py`); else the
        `earlier` one of a resumed sweep, if the store still has it; else a new one.
        """
        with translated_errors():
            run = self._take_given(name) or self._reopen(earlier) or self._create(name)
            self._point_to(run)
            self._log_params(run.info.run_id, params)
            self._set_tags(run.info.run_id, self._own_tags | {KIND_TAG: kind, f"dpprof.{kind}": name})
        return str(run.info.run_id)

    def _take_given(self, name: str) -> Run | None:
        """The run that MLflow made, with a name, if it is used."""
        if self._given is None or self._given.is_left:
            return None
        self._client.set_tag(self._given.run_id, "mlflow.runName", name)
        return self._given.run

    def _reopen(self, run_id: str | None) -> Run | None:
        if run_id is None:
            return None
        try:
            self._client.update_run(run_id, status="RUNNING")
            run = self._client.get_run(run_id)
        except MlflowException:
            return None
        self._experiment_id = run.info.experiment_id  # earlier versions had others
        return run

    def _create(self, name: str, start_ms: int | None = None, parent: str | None = None) -> Run:
        """A new run, with what MLflow noted of the one that is left for it."""
        tags = {PARENT_TAG: parent} if parent else self._given.tags if self._given else {}
        return self._client.create_run(self._experiment_id, start_ms, tags | self._own_tags, run_name=name)

    def _point_to(self, run: Run) -> None:
        if self._given is not None and self._given.is_left:
            self._given.point_to(run, self._client)

    def finish_parent(
        self,
        run_id: str,
        status: str,
        description: str,
        files: Iterable[Path] = (),
        table: Mapping[str, list[Any]] | None = None,
        tags: Mapping[str, str] | None = None,
        view: View | None = None,
    ) -> None:
        """Close the parent run with its description (cut to what MLflow takes) and artifacts.

        Images among the files also go to MLflow's chart view; the table becomes `cells.json`. With a view
        the description begins with the link to it.
        """
        with translated_errors():
            if view is not None:
                self._client.set_experiment_tag(self._experiment_id, *view.tag(run_id))
                link = runs_page(self._experiment_id, run_id)
                description = f"**[The runs side by side]({link})**\n\n{description}"
            self._set_tags(run_id, tags or {})
            self._client.set_tag(run_id, NOTE_TAG, shorten(description))
            for path in files:
                self._client.log_artifact(run_id, str(path))
                if path.suffix == ".png":
                    self._client.log_image(run_id, Image(str(path)), key=path.stem, synchronous=True)
            if table is not None:
                self._log_table(run_id, dict(table), "cells.json")
            self._client.set_terminated(run_id, status)

    def comparison_link(self, run_id: str) -> tuple[str, str | None] | None:
        """The address of a parent's view, and the command that starts the server there if one has to be
        started. None where the store does not tell the address.
        """
        store = get_tracking_uri()
        address = server(store)
        if address is None:
            return None
        return f"{address}/{runs_page(self._experiment_id, run_id)}", ui_command(store)

    def _log_table(self, run_id: str, columns: dict[str, list[Any]], name: str) -> None:
        """A table for MLflow's table view. One that is there already is replaced: MLflow would add to it."""
        if any(artifact.path == name for artifact in self._client.list_artifacts(run_id)):
            rows = [list(row) for row in zip(*columns.values(), strict=True)]
            self._client.log_dict(run_id, {"columns": list(columns), "data": rows}, name)
        else:
            self._client.log_table(run_id, columns, name)

    def log_result(
        self,
        result: Result,
        tags: Mapping[str, str],
        parent: str | None = None,
        *,
        names_model: bool = True,
    ) -> str:
        """Log one experiment's folder and return the run's id.

        With a parent it becomes a nested run. Without one, under `mlflow run`, it goes into the run that
        MLflow made, unless that is left (`project_run.py`). Its name is short (`run_names.py`), with the
        model if `names_model`; the tag `dpprof.run` has the folder's. A folder logged to this store before is
        not logged again: it is only put under the parent. Raises TrackingError; a run left half-written is
        deleted when the folder is logged again.
        """
        folder = result.folder
        with translated_errors():
            run_id = self._logged_before(folder)
            if run_id is not None:
                self._set_tags(run_id, {**tags, PARENT_TAG: parent} if parent else tags)
                return run_id
            run_id = self._open(result, parent, names_model=names_model)
            link = {"run_id": run_id, "tracking_uri": get_tracking_uri()}
            write_text(folder.mlflow, json.dumps(link | {"complete": False}))
            self._write(run_id, result, tags)
            self._client.set_terminated(run_id, result.status, _end_ms(result))
            write_text(folder.mlflow, json.dumps(link | {"complete": True}))
        return run_id

    def forget(self, folder: RunFolder) -> None:
        """Delete the run that the folder was logged as, before the experiment is done again."""
        with translated_errors():
            run_id = self._logged_before(folder)
            if run_id is not None:
                self._client.delete_run(run_id)

    def log_metrics(
        self, run_id: str, figures: Mapping[str, float], config: ExperimentConfig | None = None
    ) -> None:
        """Add figures to a run; those of an estimate go under `estimate/`."""
        prefix = f"{ESTIMATE}/" if config is not None and config.is_estimate else ""
        with translated_errors():
            self._log_metrics(run_id, [(prefix + name, value, 0) for name, value in figures.items()])

    def _logged_before(self, folder: RunFolder) -> str | None:
        """The run of this store that holds the folder already, if there is one."""
        try:
            link = json.loads(folder.mlflow.read_text())
            if link["tracking_uri"] != get_tracking_uri():
                return None
            run = self._client.get_run(link["run_id"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError, MlflowException):
            return None
        if run.info.lifecycle_stage == "deleted":
            return None
        if not link["complete"]:
            self._client.delete_run(run.info.run_id)
            return None
        return str(run.info.run_id)

    def _open(self, result: Result, parent: str | None, *, names_model: bool) -> str:
        name = short_name(result.name, result.config, with_model=names_model)
        run = self._take_given(name) if parent is None else None
        if run is None:
            start_ms = int(1000 * result.record.started_at) if result.record else None
            run = self._create(name, start_ms, parent)
        if parent is None:
            self._point_to(run)
        return str(run.info.run_id)

    def _write(self, run_id: str, result: Result, tags: Mapping[str, str]) -> None:
        record = result.record
        self._log_params(run_id, params_of(result))
        # MLflow lists a run's metrics in the order in which they came.
        self.log_metrics(run_id, logged(result.named), result.config)
        if record is not None and record.headline_finished:
            by_step = series(record)
            self._log_metrics(run_id, [(n, v, i) for n, vs in by_step.items() for i, v in enumerate(vs)])
            for name, columns in tables(record).items():
                self._client.log_table(run_id, columns, name)
        self._set_tags(run_id, {**self._own_tags, **tags_of(result), **tags})
        if result.folder.timeline_image.exists():
            image = Image(str(result.folder.timeline_image))
            self._client.log_image(run_id, image, key=TIMELINE, synchronous=True)
        for path in result.folder.artifacts():
            if path.is_dir():
                self._client.log_artifacts(run_id, str(path), path.name)
            else:
                self._client.log_artifact(run_id, str(path))

    def _log_params(self, run_id: str, params: Mapping[str, object]) -> None:
        """Log params, except those the run has already: `mlflow run` logs them as they were given."""
        present = self._client.get_run(run_id).data.params
        missing = [Param(name, str(value)) for name, value in params.items() if name not in present]
        for i in range(0, len(missing), _PARAMS_PER_BATCH):
            self._client.log_batch(run_id, params=missing[i : i + _PARAMS_PER_BATCH])

    def _log_metrics(self, run_id: str, values: list[tuple[str, float, int]]) -> None:
        now = int(1000 * time.time())
        listed = [Metric(name, value, now, step) for name, value, step in values]
        for i in range(0, len(listed), _METRICS_PER_BATCH):
            self._client.log_batch(run_id, metrics=listed[i : i + _METRICS_PER_BATCH])

    def _set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        self._client.log_batch(run_id, tags=[RunTag(name, value[:_MAX_TAG]) for name, value in tags.items()])


def shorten(text: str, most: int = _MAX_DESCRIPTION) -> str:
    """Cut a text at a line's end so that it fits, and say that it was cut."""
    if len(text) <= most:
        return text
    note = "\n\n(cut here; the whole is in the artifact `summary.md`)"
    kept = text[: most - len(note)]
    return kept[: kept.rfind("\n")] + note


def _end_ms(result: Result) -> int | None:
    """When the experiment ended, in ms since the epoch; None (now) if nothing tells."""
    ended_at = result.failure.at if result.failure else result.record.ended_at if result.record else None
    return None if ended_at is None else int(1000 * ended_at)
