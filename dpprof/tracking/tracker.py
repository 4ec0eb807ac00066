"""Write run folders to MLflow as runs with params, metrics, tags and artifacts.

The measuring process never talks to MLflow: a run is written after its experiment, with that one's start and
end times.

A folder's link is valid for the run that has its id. A copied folder has the original's run.

MLproject cannot name an experiment. Unless the user does (`--experiment-name`, `--experiment-id` or their
variables), `mlflow run` creates its run in the experiment Default, and runs cannot be moved. So dpprof
creates its own, with MLflow's tags of user, source and commit. The run in Default stays and points to it; it
cannot be deleted, as `mlflow run` sets its status at the end. `--experiment-name Default` cannot be told from
no name; `MLFLOW_EXPERIMENT_NAME=Default` can.
"""

import getpass
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mlflow
from mlflow import get_tracking_uri
from mlflow.entities import Run
from mlflow.environment_variables import MLFLOW_EXPERIMENT_ID, MLFLOW_EXPERIMENT_NAME, MLFLOW_RUN_ID

from dpprof.config.estimating import ESTIMATE
from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import DpprofError, TrackingError, refuse
from dpprof.record.figures.names import logged, series
from dpprof.record.figures.results import FAILED, KILLED, Result
from dpprof.record.folder import SweepFolder
from dpprof.record.link import Link
from dpprof.tracking.contents import params_of, short_name, tables, tags_of
from dpprof.tracking.store import EXISTS, KIND_TAG, NOTE_TAG, PARENT_TAG, Refused, Store, store_name
from dpprof.tracking.view import TIMELINE, View, runs_page, server, ui_command

DEFAULT_EXPERIMENT = "dpprof"
LINK_TAG = "dpprof.link_id"
_OWN = "dpprof"
_USER = "mlflow.user"
_DEFAULT_EXPERIMENT_ID = "0"
_MADE_BY_MLFLOW_RUN = "mlflow.project.entryPoint"
_NAME = "mlflow.runName"


@dataclass(frozen=True)
class Summary:
    """Content of a parent run. `ratios` are for child runs, by name; `view` is how MLflow compares them.

    `params` are those that were not known when the run began.
    """

    description: str
    files: Sequence[Path] = ()
    table: Mapping[str, list[Any]] | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    view: View | None = None
    params: Mapping[str, object] = field(default_factory=dict)


class Tracker:
    """Writes runs into the store that MLflow's own settings name (`MLFLOW_TRACKING_URI`, ...).

    All methods raise TrackingError. A run whose logging fails is closed as failed if possible.
    """

    def __init__(self) -> None:
        self.store = Store()
        # The run that `mlflow run` created, taken or left for another one (see above).
        self._taken: Run | None = None
        self._left: Run | None = None
        self._experiment_id = ""
        self._own_tags = {"mlflow.source.name": "dpprof"}
        self._opened: set[str] = set()
        # A sentence for each unreadable link.
        self.damaged: list[str] = []

    def open(self, active: Run | None = None) -> None:
        """Open the store; must be called first. New runs go where the active run is, if one is given."""
        self.store.open()
        if active is None and (run_id := MLFLOW_RUN_ID.get()):
            given = self.store.ask(self.store.client.get_run, run_id)
            is_in_default = MLFLOW_EXPERIMENT_ID.get() == given.info.experiment_id == _DEFAULT_EXPERIMENT_ID
            is_named = MLFLOW_EXPERIMENT_NAME.get() is not None
            is_left = is_in_default and not is_named and _MADE_BY_MLFLOW_RUN in given.data.tags
            self._taken, self._left = (None, given) if is_left else (given, None)
        self._experiment_id = active.info.experiment_id if active else self._find_experiment()
        with suppress(KeyError, OSError):  # the system has none, as in some containers
            self._own_tags[_USER] = self._given.data.tags[_USER] if self._given else getpass.getuser()

    @property
    def _given(self) -> Run | None:
        return self._taken or self._left

    def close_abandoned(self, status: str) -> None:
        """Close all open runs, even if a call still hangs."""
        for run_id in list(self._opened):
            with suppress(Exception):  # nobody would see the error
                self.store.client.set_terminated(run_id, status)

    def end_given(self, status: str) -> None:
        """Set the status of the run created by `mlflow run`, if any."""
        if self._given is not None:
            self.store.ask(self.store.client.set_terminated, self._given.info.run_id, status)

    def _find_experiment(self) -> str:
        if MLFLOW_EXPERIMENT_ID.get() and not self._left:
            return str(MLFLOW_EXPERIMENT_ID.get())
        name = MLFLOW_EXPERIMENT_NAME.get() or DEFAULT_EXPERIMENT
        client = self.store.client

        def find() -> str:
            experiment = client.get_experiment_by_name(name)
            return str(experiment.experiment_id if experiment else client.create_experiment(name))

        try:
            return self.store.ask(find)
        except Refused as error:  # created meanwhile by another process
            if error.code != EXISTS:
                raise
            return self.store.ask(find)

    def _link(self, path: Path) -> Link | None:
        try:
            return Link.read(path)
        except DpprofError as error:
            self.damaged.append(f"{error}; the folder counts as not logged")
            return None

    def _held(self, link: Link | None) -> Run | None:
        """Return the run that holds a link's folder, if the run has the link's id."""
        if link is None:
            return None
        if link.run_id is None:  # the writer stopped before it knew the run
            return next(iter(self.store.search(_condition(link))), None)
        run = self.store.run(link.run_id)
        if run is None or run.info.lifecycle_stage == "deleted":
            return None
        return run if run.data.tags.get(LINK_TAG) == link.link_id else None

    def start_parent(self, name: str, kind: str, params: Mapping[str, object], folder: SweepFolder) -> str:
        """Open the parent run of a sweep and return its id.

        This is the run of `mlflow run` unless it is left (see above), else the run linked to the sweep's
        folder if it still exists, else a new one.
        """
        folder.path.mkdir(parents=True, exist_ok=True)
        link = self._link(folder.mlflow)
        held = self._held(link)
        if link is None or held is None:
            link = Link.new(store_name())
            link.write(folder.mlflow)  # before the run is created, so that it is found after a crash
        run = self._taken or held
        run_id = str((run or self._create(name, link)).info.run_id)
        with self._closed_on_failure(run_id):
            if run is not None:
                self.store.ask(self.store.client.update_run, run_id, status="RUNNING")
                self._experiment_id = run.info.experiment_id  # another one may have been chosen since
            self._name_given(run_id, name)
            self.store.log_params(run_id, params)
            told = {KIND_TAG: kind, f"dpprof.{kind}": name, LINK_TAG: link.link_id}
            self.store.set_tags(run_id, self._own_tags | told)
            replace(link, run_id=run_id).write(folder.mlflow)
        return run_id

    @contextmanager
    def _closed_on_failure(self, run_id: str, status: str = FAILED) -> Iterator[None]:
        self._opened.add(run_id)
        try:
            yield
        except BaseException:
            with suppress(TrackingError):
                self._terminate(run_id, status)
            raise

    def _terminate(self, run_id: str, status: str, end_ms: int | None = None) -> None:
        self.store.ask(self.store.client.set_terminated, run_id, status, end_ms)
        self._opened.discard(run_id)

    def _create(self, name: str, link: Link, start_ms: int | None = None, parent: str | None = None) -> Run:
        """Create a run tagged with the link's id, or find it after a lost answer.

        It has the tags of the run of `mlflow run` if that is left.
        """
        tags = {PARENT_TAG: parent} if parent else dict(self._left.data.tags if self._left else {})
        tags.pop(_NAME, None)
        tags |= self._own_tags | {LINK_TAG: link.link_id}
        client, where = self.store.client, self._experiment_id
        is_repeated = False

        def create() -> Run:
            nonlocal is_repeated
            found = client.search_runs([where], _condition(link)) if is_repeated else []
            is_repeated = True
            return found[0] if found else client.create_run(where, start_ms, tags, run_name=name)

        return self.store.ask(create)

    def _delete(self, run_id: str) -> None:
        client = self.store.client

        def delete() -> None:  # after a lost answer, MLflow would refuse to delete the run again
            if client.get_run(run_id).info.lifecycle_stage != "deleted":
                client.delete_run(run_id)

        self.store.ask(delete)

    def _name_given(self, run_id: str, name: str) -> None:
        """Name the run of `mlflow run` if it is taken, or let it point to the run that it is left for."""
        if self._taken is not None:
            self.store.set_tags(run_id, {_NAME: name})
        if self._left is not None:
            where = self._experiment_id
            experiment = self.store.ask(self.store.client.get_experiment, where).name
            link = f"[{name}](#/experiments/{where}/runs/{run_id})"
            said = f"Everything is in {link}, in the experiment {experiment}."
            self.store.set_tags(self._left.info.run_id, {_NAME: f"{name} is in {experiment}", NOTE_TAG: said})

    def finish_parent(self, run_id: str, status: str, summary: Summary) -> None:
        """Close the parent run with its description, cut to MLflow's limit, and artifacts.

        The table becomes `cells.json`. With a view the description begins with a link to it.
        """
        write, where, description = self.store, self._experiment_id, summary.description
        with self._closed_on_failure(run_id, status if status == KILLED else FAILED):
            if summary.view is not None:
                write.ask(write.client.set_experiment_tag, where, *summary.view.tag(run_id))
                link = runs_page(where, run_id)
                description = f"**[The runs side by side]({link})**\n\n{description}"
            if summary.params:
                write.log_params(run_id, summary.params)
            write.set_tags(run_id, summary.tags)
            write.describe(run_id, description)
            write.log_files(run_id, summary.files)
            if summary.table is not None:
                write.log_tables(run_id, {"cells.json": summary.table})
            self._terminate(run_id, status)

    def comparison_link(self, run_id: str) -> tuple[str, str | None] | None:
        """Return the URL of a parent's view, if known, and the command that starts its server if needed."""
        store = get_tracking_uri()
        address = server(store)
        if address is None:
            return None
        return f"{address}/{runs_page(self._experiment_id, run_id)}", ui_command(store)

    def log_result(
        self, result: Result, tags: Mapping[str, str], parent: str | None = None, *, names_model: bool = True
    ) -> str:
        """Log one experiment's folder and return the run's id.

        With a parent it becomes a nested run. Without one, under `mlflow run`, MLflow's own run is left: its
        params are as the user gave them, and cannot be changed. The run's name is short (`contents.py`), with
        the model if `names_model`; the tag `dpprof.run` has the folder's. A folder that is already logged is
        only put under the parent; a partly written run is deleted first.
        """
        folder = result.folder
        link = self._link(folder.mlflow)
        held = self._held(link)
        if held is not None and link is not None and link.complete:
            run_id = str(held.info.run_id)
            self.store.set_tags(run_id, {**tags, PARENT_TAG: parent} if parent else tags)
            return run_id
        if held is not None:
            self._delete(held.info.run_id)
        link = Link.new(store_name())
        # Written before the run, which is tagged with the link's id, so that it is found after a crash.
        link.write(folder.mlflow)
        name = short_name(result.name, result.config, with_model=names_model)
        if parent is None and self._taken is not None:
            self._taken, self._left = None, self._taken
        start_ms = int(1000 * result.record.started_at) if result.record else None
        run_id = str(self._create(name, link, start_ms, parent).info.run_id)
        with self._closed_on_failure(run_id):
            if parent is None:
                self._name_given(run_id, name)
            self._write_result(run_id, result, {**tags, LINK_TAG: link.link_id})
            record, failure = result.record, result.failure
            ended_at = failure.at if failure else record.ended_at if record else None
            self._terminate(run_id, result.status, None if ended_at is None else int(1000 * ended_at))
        replace(link, run_id=run_id, complete=True).write(folder.mlflow)
        return run_id

    def log_into(self, run_id: str, result: Result) -> None:
        """Log one experiment's folder into an open run of the user's, beside what that has.

        Params, tags and artifacts are dpprof's by name, so that they neither replace the user's nor are in
        their way later. The link's tag comes last, after the link is complete: an incomplete link would have
        the run deleted when its folder is logged again.
        """
        link = replace(Link.new(store_name()), run_id=run_id, complete=True)
        params, tags, write = params_of(result), tags_of(result), self.store
        write.log_params(run_id, {f"{_OWN}.{name}": value for name, value in params.items()})
        self._log_figures(run_id, result)
        # Without a kind: it is no run of dpprof's for those who search for these.
        write.set_tags(run_id, {n: v for n, v in tags.items() if n.startswith(f"{_OWN}.") and n != KIND_TAG})
        write.log_files(run_id, result.folder.artifacts().files, result.folder.path, under=_OWN)
        link.write(result.folder.mlflow)
        write.set_tags(run_id, {LINK_TAG: link.link_id})

    def log_metrics(
        self, run_id: str, figures: Mapping[str, float], config: ExperimentConfig | None = None
    ) -> None:
        """Add figures to a run; those of an estimate go under `estimate/`."""
        prefix = f"{ESTIMATE}/" if config is not None and config.is_estimate else ""
        self.store.log_metrics(run_id, [(prefix + name, value, 0) for name, value in figures.items()])

    def _write_result(self, run_id: str, result: Result, tags: Mapping[str, str]) -> None:
        record, write = result.record, self.store
        write.log_params(run_id, params_of(result))
        self._log_figures(run_id, result)
        if record is not None and record.headline_finished:
            write.log_tables(run_id, tables(record))
        write.set_tags(run_id, {**self._own_tags, **tags_of(result), **tags})
        if result.folder.timeline_image.exists():
            write.log_image(run_id, result.folder.timeline_image, TIMELINE)
        write.log_files(run_id, result.folder.artifacts().files, result.folder.path)

    def _log_figures(self, run_id: str, result: Result) -> None:
        self.log_metrics(run_id, logged(result.named), result.config)
        if result.record is not None and result.record.headline_finished:
            by_step = series(result.record).items()
            self.store.log_metrics(run_id, [(n, v, i) for n, vs in by_step for i, v in enumerate(vs)])


def _condition(link: Link) -> str:
    return f"tags.`{LINK_TAG}` = '{link.link_id}'"


def active_run(how: str) -> Run:
    """Return this thread's active run. Raises ConfigError if there is none."""
    run = mlflow.active_run()
    if run is None:
        raise refuse("mlflow", how, "only in an active MLflow run; call mlflow.start_run() before the loop")
    return run


def log_loop(result: Result, active: Run | None, *, is_nested: bool) -> str:
    """Log a loop under the active run or into it; without one, as `dpprof log` does. Returns the run's id."""
    before = dict(os.environ)
    tracker = Tracker()
    try:
        tracker.open(active)
        if active is None or is_nested:
            return tracker.log_result(result, {}, active.info.run_id if active else None)
        tracker.log_into(active.info.run_id, result)
        return str(active.info.run_id)
    finally:  # the limits on requests are dpprof's, not those of the user's own calls
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
