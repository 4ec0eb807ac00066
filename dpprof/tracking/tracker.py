"""Run folders become MLflow runs, with params, metrics, tags and artifacts.

The measuring process never talks to MLflow: a run is written when its experiment has ended, with the
experiment's own start and end times.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlflow import get_tracking_uri
from mlflow.entities import Run
from mlflow.environment_variables import MLFLOW_EXPERIMENT_ID, MLFLOW_EXPERIMENT_NAME

from dpprof.config.estimating import ESTIMATE
from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import DpprofError, TrackingError
from dpprof.figures.names import logged, series
from dpprof.figures.results import FAILED, KILLED, Result
from dpprof.record.folder import SweepFolder
from dpprof.record.link import Link
from dpprof.tracking.address import runs_page, server, ui_command
from dpprof.tracking.contents import params_of, tags_of
from dpprof.tracking.links import LINK_TAG, create_linked, delete, held_by
from dpprof.tracking.project_run import ProjectRun
from dpprof.tracking.run_names import short_name
from dpprof.tracking.store import EXISTS, KIND_TAG, PARENT_TAG, Refused, Store, store_name, user_name
from dpprof.tracking.tables import tables
from dpprof.tracking.view import TIMELINE, View
from dpprof.tracking.writer import Writer

DEFAULT_EXPERIMENT = "dpprof"
_USER = "mlflow.user"
_SOURCE = {"mlflow.source.name": "dpprof"}


class Tracker:
    """Writes runs into the store that MLflow's own settings name (`MLFLOW_TRACKING_URI`, ...).

    Every method raises TrackingError if the store refuses, or does not answer. A run whose logging fails is
    closed as failed, where the store lets it.
    """

    def __init__(self) -> None:
        self.store = Store()
        self._given: ProjectRun | None = None
        self._experiment_id = ""
        self._own_tags = dict(_SOURCE)
        # The runs that were opened and not yet closed.
        self._opened: set[str] = set()
        # A sentence for each link that cannot be read.
        self.damaged: list[str] = []

    def open(self) -> None:
        """Open the store; comes before everything else."""
        self.store.open()
        self._write = Writer(self.store)
        self._given = self.store.ask(ProjectRun.given, self.store.client)
        self._experiment_id = self._find_experiment()
        user = self._given.tags.get(_USER) if self._given else user_name()
        if user:
            self._own_tags[_USER] = user

    def close_abandoned(self, status: str) -> None:
        """Close the runs that are open, past a call that is no longer waited for."""
        for run_id in list(self._opened):
            with suppress(Exception):  # nobody is left to hear of it
                self.store.client.set_terminated(run_id, status)

    def end_given(self, status: str) -> None:
        """Set the status of the run that `mlflow run` made, if it did."""
        if self._given is not None:
            self._write.terminate(self._given.run_id, status)

    def _find_experiment(self) -> str:
        is_left = self._given is not None and self._given.is_left
        if MLFLOW_EXPERIMENT_ID.get() and not is_left:
            return str(MLFLOW_EXPERIMENT_ID.get())
        name = MLFLOW_EXPERIMENT_NAME.get() or DEFAULT_EXPERIMENT
        ask, client = self.store.ask, self.store.client
        experiment = ask(client.get_experiment_by_name, name)
        if experiment is None:
            try:
                return str(ask(client.create_experiment, name))
            except Refused as error:
                # Another process made it meanwhile, or this one did and the answer was lost.
                experiment = ask(client.get_experiment_by_name, name) if error.code == EXISTS else None
                if experiment is None:
                    raise
        return str(experiment.experiment_id)

    def _link(self, path: Path) -> Link | None:
        """The link that a file holds, if it can be read."""
        try:
            return Link.read(path)
        except DpprofError as error:
            self.damaged.append(f"{error}; the folder counts as not logged")
            return None

    def start_parent(
        self, name: str, kind: str, params: Mapping[str, object], folder: SweepFolder, earlier: str | None
    ) -> str:
        """Open the parent run of a sweep and return its id.

        Under `mlflow run` that is the run that MLflow made, unless it is left (`project_run.py`); else the
        one that holds the sweep's folder, if the store still has it (`earlier` is what a version without
        links noted of it); else a new one.
        """
        folder.path.mkdir(parents=True, exist_ok=True)
        link = self._link(folder.mlflow)
        if link is None and earlier is not None:
            link = Link(earlier, store_name(), complete=True)
        held = held_by(link, folder.path, self.store, self._experiment_id)
        if link is None or held is None or not link.link_id:
            link = Link.new(folder.path, store_name())
            link.write(folder.mlflow)  # before there is a run, so that it is found however this ends
        run = self._take_given(name) or held
        run_id = str((run or self._create(name, link)).info.run_id)
        with self._closed_on_failure(run_id):
            if run is not None:
                self._reopen(run)
            self._point_to(run_id, name)
            self._write.log_params(run_id, params)
            told = {KIND_TAG: kind, f"dpprof.{kind}": name, LINK_TAG: link.link_id}
            self._write.set_tags(run_id, self._own_tags | told)
            link.to(run_id).write(folder.mlflow)
        return run_id

    @contextmanager
    def _closed_on_failure(self, run_id: str, status: str = FAILED) -> Iterator[None]:
        """Close a run if what is done with it fails."""
        self._opened.add(run_id)
        try:
            yield
        except BaseException:
            with suppress(TrackingError):
                self._terminate(run_id, status)
            raise

    def _terminate(self, run_id: str, status: str, end_ms: int | None = None) -> None:
        self._write.terminate(run_id, status, end_ms)
        self._opened.discard(run_id)

    def _take_given(self, name: str) -> Run | None:
        """The run that MLflow made, with a name, if it is used."""
        if self._given is None or self._given.is_left:
            return None
        self._write.set_tags(self._given.run_id, {"mlflow.runName": name})
        return self._given.run

    def _reopen(self, run: Run) -> None:
        self.store.ask(self.store.client.update_run, run.info.run_id, status="RUNNING")
        self._experiment_id = run.info.experiment_id  # earlier versions had others

    def _create(self, name: str, link: Link, start_ms: int | None = None, parent: str | None = None) -> Run:
        """A new run, with what MLflow noted of the one that is left for it."""
        tags = {PARENT_TAG: parent} if parent else self._given.tags if self._given else {}
        return create_linked(self.store, self._experiment_id, link, name, tags | self._own_tags, start_ms)

    def _point_to(self, run_id: str, name: str) -> None:
        if self._given is not None and self._given.is_left:
            self.store.ask(self._given.point_to, run_id, name, self._experiment_id, self.store.client)

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
        write = self._write
        with self._closed_on_failure(run_id, status if status == KILLED else FAILED):
            if view is not None:
                tag = view.tag(run_id)
                self.store.ask(self.store.client.set_experiment_tag, self._experiment_id, *tag)
                link = runs_page(self._experiment_id, run_id)
                description = f"**[The runs side by side]({link})**\n\n{description}"
            write.set_tags(run_id, tags or {})
            write.describe(run_id, description)
            write.log_files(run_id, files)
            for path in files:
                if path.suffix == ".png":
                    write.log_image(run_id, path, path.stem)
            if table is not None:
                write.log_tables(run_id, {"cells.json": table})
            self._terminate(run_id, status)

    def comparison_link(self, run_id: str) -> tuple[str, str | None] | None:
        """The address of a parent's view, and the command that starts the server there if one has to be
        started. None where the store does not tell the address.
        """
        store = get_tracking_uri()
        address = server(store)
        if address is None:
            return None
        return f"{address}/{runs_page(self._experiment_id, run_id)}", ui_command(store)

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
        model if `names_model`; the tag `dpprof.run` has the folder's. A folder that a run of this store holds
        is not logged again: the run is only put under the parent. One left half-written is deleted first.
        """
        folder = result.folder
        link = self._link(folder.mlflow)
        held = held_by(link, folder.path, self.store, self._experiment_id)
        if held is not None and link is not None and link.complete:
            run_id = str(held.info.run_id)
            self._write.set_tags(run_id, {**tags, PARENT_TAG: parent} if parent else tags)
            return run_id
        if held is not None:
            delete(held, self.store)
        link = Link.new(folder.path, store_name())
        # Written before there is a run, which bears the link's id: however this ends, it is found again.
        link.write(folder.mlflow)
        run_id = self._open(result, parent, link, names_model=names_model)
        with self._closed_on_failure(run_id):
            link = link.to(run_id)
            link.write(folder.mlflow)
            self._write_result(run_id, result, {**tags, LINK_TAG: link.link_id})
            self._terminate(run_id, result.status, _end_ms(result))
        replace(link, complete=True).write(folder.mlflow)
        return run_id

    def log_metrics(
        self, run_id: str, figures: Mapping[str, float], config: ExperimentConfig | None = None
    ) -> None:
        """Add figures to a run; those of an estimate go under `estimate/`."""
        prefix = f"{ESTIMATE}/" if config is not None and config.is_estimate else ""
        self._write.log_metrics(run_id, [(prefix + name, value, 0) for name, value in figures.items()])

    def _open(self, result: Result, parent: str | None, link: Link, *, names_model: bool) -> str:
        name = short_name(result.name, result.config, with_model=names_model)
        run = self._take_given(name) if parent is None else None
        if run is None:
            start_ms = int(1000 * result.record.started_at) if result.record else None
            run = self._create(name, link, start_ms, parent)
        run_id = str(run.info.run_id)
        if parent is None:
            with self._closed_on_failure(run_id):
                self._point_to(run_id, name)
        return run_id

    def _write_result(self, run_id: str, result: Result, tags: Mapping[str, str]) -> None:
        record, write = result.record, self._write
        write.log_params(run_id, params_of(result))
        # MLflow lists a run's metrics in the order in which they came.
        self.log_metrics(run_id, logged(result.named), result.config)
        if record is not None and record.headline_finished:
            by_step = series(record)
            write.log_metrics(run_id, [(n, v, i) for n, vs in by_step.items() for i, v in enumerate(vs)])
            write.log_tables(run_id, tables(record))
        write.set_tags(run_id, {**self._own_tags, **tags_of(result), **tags})
        if result.folder.timeline_image.exists():
            write.log_image(run_id, result.folder.timeline_image, TIMELINE)
        write.log_files(run_id, result.folder.artifacts().files, result.folder.path)


def _end_ms(result: Result) -> int | None:
    """When the experiment ended, in ms since the epoch; None (now) if nothing tells."""
    ended_at = result.failure.at if result.failure else result.record.ended_at if result.record else None
    return None if ended_at is None else int(1000 * ended_at)
