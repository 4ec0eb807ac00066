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
from mlflow.entities import Metric, Param, RunTag
from mlflow.environment_variables import MLFLOW_EXPERIMENT_ID, MLFLOW_EXPERIMENT_NAME, MLFLOW_RUN_ID
from mlflow.exceptions import MlflowException
from mlflow.tracking.multimedia import Image

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import ESTIMATE, to_flat
from dpprof.config.training import SIZE_FIELDS
from dpprof.figures.names import series
from dpprof.figures.results import Result, describe, nonfinite_losses
from dpprof.record.folder import RunFolder, write_text
from dpprof.tracking.store import KIND_TAG, PARENT_TAG, open_store, translated_errors
from dpprof.tracking.tables import tables

DEFAULT_EXPERIMENT = "dpprof"
_NOTE = "mlflow.note.content"
_MAX_DESCRIPTION = 8000
_MAX_TAG = 5000
_METRICS_PER_BATCH = 1000
_PARAMS_PER_BATCH = 100
_RESOLVED = ("device", "model_size", *SIZE_FIELDS)


class Tracker:
    """Writes runs into the store that MLflow's own settings name (`MLFLOW_TRACKING_URI`, ...)."""

    def __init__(self) -> None:
        with translated_errors():
            self._client = open_store()
            self._experiment_id = self._find_experiment()
        self._given_run_id: str | None = MLFLOW_RUN_ID.get()

    def _find_experiment(self) -> str:
        if MLFLOW_EXPERIMENT_ID.get():
            return str(MLFLOW_EXPERIMENT_ID.get())
        name = MLFLOW_EXPERIMENT_NAME.get() or DEFAULT_EXPERIMENT
        experiment = self._client.get_experiment_by_name(name)
        return str(experiment.experiment_id if experiment else self._client.create_experiment(name))

    def start_parent(self, name: str, kind: str, params: Mapping[str, object], earlier: str | None) -> str:
        """Open the parent run of a sweep and return its id.

        Under `mlflow run` that is the run that MLflow made; else the `earlier` one of a resumed sweep,
        if the store still has it; else a new one.
        """
        tags = {"mlflow.source.name": "dpprof", KIND_TAG: kind, f"dpprof.{kind}": name}
        with translated_errors():
            run_id = self._given_run_id or self._reopen(earlier)
            if run_id is None:
                run_id = self._client.create_run(self._experiment_id, run_name=name).info.run_id
            elif self._given_run_id:
                self._client.set_tag(run_id, "mlflow.runName", name)
            self._log_params(run_id, params)
            self._set_tags(run_id, tags)
        return run_id

    def _reopen(self, run_id: str | None) -> str | None:
        if run_id is None:
            return None
        try:
            self._client.update_run(run_id, status="RUNNING")
        except MlflowException:
            return None
        return run_id

    def finish_parent(
        self,
        run_id: str,
        status: str,
        description: str,
        files: Iterable[Path] = (),
        table: Mapping[str, list[Any]] | None = None,
    ) -> None:
        """Close the parent run with its description (cut to what MLflow takes) and artifacts.

        Images among the files also go to MLflow's chart view; the table becomes `cells.json`.
        """
        with translated_errors():
            self._client.set_tag(run_id, _NOTE, shorten(description))
            for path in files:
                self._client.log_artifact(run_id, str(path))
                if path.suffix == ".png":
                    self._client.log_image(run_id, Image(str(path)), key=path.stem, synchronous=True)
            if table is not None:
                self._log_table(run_id, dict(table), "cells.json")
            self._client.set_terminated(run_id, status)

    def _log_table(self, run_id: str, columns: dict[str, list[Any]], name: str) -> None:
        """A table for MLflow's table view. One that is there already is replaced: MLflow would add to it."""
        if any(artifact.path == name for artifact in self._client.list_artifacts(run_id)):
            rows = [list(row) for row in zip(*columns.values(), strict=True)]
            self._client.log_dict(run_id, {"columns": list(columns), "data": rows}, name)
        else:
            self._client.log_table(run_id, columns, name)

    def log_result(self, result: Result, tags: Mapping[str, str], parent: str | None = None) -> str:
        """Log one experiment's folder and return the run's id.

        With a parent it becomes a nested run. Without one, under `mlflow run`, it goes into the run that
        MLflow made. A folder logged to this store before is not logged again: it is only put under the
        parent. Raises TrackingError; a run left half-written is deleted when the folder is logged again.
        """
        folder = result.folder
        with translated_errors():
            run_id = self._logged_before(folder)
            if run_id is not None:
                self._set_tags(run_id, {**tags, PARENT_TAG: parent} if parent else tags)
                return run_id
            run_id = self._open(result, parent)
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
        except (OSError, ValueError, KeyError, MlflowException):
            return None
        if run.info.lifecycle_stage == "deleted":
            return None
        if not link["complete"]:
            self._client.delete_run(run.info.run_id)
            return None
        return str(run.info.run_id)

    def _open(self, result: Result, parent: str | None) -> str:
        if parent is None and self._given_run_id:
            self._client.set_tag(self._given_run_id, "mlflow.runName", result.name)
            return self._given_run_id
        tags = {PARENT_TAG: parent} if parent else {}
        start_ms = int(1000 * result.record.started_at) if result.record else None
        run = self._client.create_run(self._experiment_id, start_ms, tags, run_name=result.name)
        return str(run.info.run_id)

    def _write(self, run_id: str, result: Result, tags: Mapping[str, str]) -> None:
        record, failure = result.record, result.failure
        params: dict[str, object] = to_flat(result.config)
        params |= {f"resolved_{name}": params[name] for name in _RESOLVED}
        own_tags = {
            "mlflow.source.name": "dpprof",
            _NOTE: describe(result),
            "dpprof.trainer": result.config.trainer,
            "dpprof.model": result.config.model_name,
            KIND_TAG: ESTIMATE if result.config.is_estimate else "experiment",
            **tags,
        }
        if record is not None:
            params |= record.environment
            if record.num_parameters is not None:
                params["num_parameters"] = record.num_parameters
        if failure is not None:
            if failure.kind != "interrupted":
                own_tags["dpprof.failure"] = failure.kind
            own_tags["dpprof.failure_reason"] = failure.message
        if record is not None and record.headline_finished:
            failed = record.failed_passes
            if failed:
                own_tags["dpprof.failed_pass"] = "; ".join(f"{name}: {why}" for name, why in failed.items())
            if record.skipped_passes:
                own_tags["dpprof.skipped_pass"] = "; ".join(
                    f"{name}: {why}" for name, why in record.skipped_passes.items()
                )
            own_tags |= _check_tags(result)
            if record.warnings:
                own_tags["dpprof.warnings"] = "; ".join(record.warnings)
            by_step = series(record)
            self._log_metrics(run_id, [(n, v, i) for n, vs in by_step.items() for i, v in enumerate(vs)])
            for name, columns in tables(record).items():
                self._client.log_table(run_id, columns, name)
        self._log_params(run_id, params)
        self.log_metrics(run_id, result.metrics, result.config)
        self._set_tags(run_id, own_tags)
        if result.folder.timeline_image.exists():
            image = Image(str(result.folder.timeline_image))
            self._client.log_image(run_id, image, key="memory_timeline", synchronous=True)
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


def _check_tags(result: Result) -> dict[str, str]:
    """What the gradient check says, and losses that are not finite."""
    tags = {}
    verdict, record = result.gradient_verdict, result.record
    if verdict is not None:
        tags = {"dpprof.gradient_check": verdict.word, "dpprof.gradient_check_reason": verdict.reason}
    if record is not None and record.nonfinite_losses:
        tags["dpprof.nonfinite_losses"] = nonfinite_losses(record)
    return tags


def _end_ms(result: Result) -> int | None:
    """When the experiment ended, in ms since the epoch; None (now) if nothing tells."""
    ended_at = result.failure.at if result.failure else result.record.ended_at if result.record else None
    return None if ended_at is None else int(1000 * ended_at)
