"""Drives experiments together, whatever asks for them: a single run, a sweep, estimates, a fit, a test.

The one loop that starts experiments, stops them, and logs them: a campaign says where its experiments come
from and what is made of their results.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from dpprof.config.drive import DriveConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.run import drive_experiment
from dpprof.drive.stop import Stop, Stopped, stop_on_signals
from dpprof.drive.workers import run_in_order
from dpprof.drive.workload_check import refuse_unusable
from dpprof.errors import Interrupted, TrackingError
from dpprof.figures.results import FAILED, FINISHED, KILLED, Result
from dpprof.record.check import CONTRACT
from dpprof.record.folder import SweepFolder
from dpprof.reports.run_reports import write_run_reports
from dpprof.tracking.tracker import Tracker
from dpprof.tracking.view import View


class Watcher(Protocol):
    """Is told how a campaign proceeds."""

    def started(self, index: int, total: int, name: str) -> None:
        """Experiment `index` (from 1) of `total` begins."""

    def line(self, name: str, text: str) -> None:
        """The measuring process of an experiment says something."""

    def ended(self, result: Result) -> None:
        """The experiment ended, one way or another."""

    def warn(self, text: str) -> None:
        """Something the user must know, though the campaign goes on."""


@dataclass(frozen=True)
class Planned:
    """An experiment to run: the `index`th (from 1) of `total` that the user sees. `home` is the folder that
    its run folder lies in, if not the campaign's.
    """

    index: int
    total: int
    name: str
    config: ExperimentConfig
    home: SweepFolder | None = None


# Runs an experiment to its end. Raises Stopped if the user stopped everything before it began.
RunOne = Callable[[Planned], Result]
# Asks for one experiment after another, and returns the results to keep: those get pages and a run in MLflow.
Task = Callable[[RunOne], Sequence[Result]]


@dataclass(frozen=True)
class Stage:
    """Tasks of which `at_a_time` may go on at once; one by one they run in the main thread."""

    tasks: Sequence[Task]
    at_a_time: int


@dataclass(frozen=True)
class Summary:
    """What the parent run says at the end. `ratios` are figures for the children, by run name; `view` is how
    MLflow is to set them side by side.
    """

    description: str
    files: Sequence[Path] = ()
    table: Mapping[str, list[Any]] | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    view: View | None = None


@dataclass
class Campaign(ABC):
    """A named set of experiments, and what came of them so far. `parent` is its MLflow run, if it has one."""

    name: str
    drive: DriveConfig
    launcher: Launcher
    parent: str | None = field(default=None, init=False)
    results: list[Result] = field(default_factory=list, init=False)
    run_ids: dict[str, str] = field(default_factory=dict, init=False)
    # The last thing that MLflow refused.
    not_logged: TrackingError | None = field(default=None, init=False)
    stop: Stop = field(default_factory=Stop, init=False)

    @property
    def folder(self) -> SweepFolder:
        """Where its run folders lie."""
        return SweepFolder(Path(self.drive.runs_dir) / self.name)

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped it."""
        return self.stop.requested

    @property
    def status(self) -> str:
        """MLflow's status of the parent run."""
        return KILLED if self.interrupted else FAILED if self.has_failed() else FINISHED

    @property
    def tags(self) -> dict[str, str]:
        """The tags that its runs have beside their own."""
        return {}

    @property
    def has_several_models(self) -> bool:
        """Whether the names of its runs in MLflow tell their models."""
        return True

    def open_parent(self, tracker: Tracker) -> str | None:
        """Open the parent run, if there is to be one, and return its id. Raises TrackingError."""
        return None

    # How much of its workload is checked before anything else (`record/check.py`).
    checked = CONTRACT

    def experiment_to_check(self) -> ExperimentConfig | None:
        """One of its experiments, which all train one workload; None if there is nothing to check."""
        return None

    @abstractmethod
    def stages(self) -> Iterator[Stage]:
        """What to do, one stage after the other; a stage may depend on the results of those before it."""

    @abstractmethod
    def has_failed(self) -> bool:
        """Whether its parent run counts as failed."""

    @abstractmethod
    def summarize(self) -> Summary | None:
        """Write what is to be said of all results into the folder. Returns the parent run's part, if any."""

    @abstractmethod
    def raise_for_end(self) -> None:
        """Raise the error that the command should end with, if any."""


def run_campaign(campaign: Campaign, tracker: Tracker, watcher: Watcher) -> None:
    """Run all that a campaign asks for, log what it keeps, and write its summary.

    A failed experiment or an MLflow that went away does not stop it. Ctrl-C and its like do: what is running
    is stopped, and what was measured is logged. Raises ConfigError if the workload cannot be used and
    TrackingError if MLflow is not there, both before anything is started, and OSError if the runs folder can
    no longer be written.
    """
    with stop_on_signals(campaign.stop):
        experiment = campaign.experiment_to_check()
        if experiment is not None:
            refuse_unusable(
                experiment, campaign.checked, campaign.launcher, campaign.drive.timeout_s, campaign.stop
            )
        try:
            campaign.parent = campaign.open_parent(tracker)
        except TrackingError:
            if campaign.stop.requested:
                raise Interrupted("stopped before anything was measured") from None
            raise
        driver = _Driver(campaign, tracker, watcher)
        try:
            driver.run_stages()
            driver.log_summary(campaign.summarize())
        except Exception as error:
            # The disk is full, or the folder has gone: nothing more can be kept, so nothing more is measured.
            if campaign.parent is not None:
                with suppress(TrackingError):
                    tracker.finish_parent(campaign.parent, FAILED, f"stopped: {error}")
            raise


@dataclass
class _Driver:
    """What the experiments of a campaign have in common while they run."""

    campaign: Campaign
    tracker: Tracker
    watcher: Watcher
    # One thread at a time talks to MLflow.
    lock: Lock = field(default_factory=Lock)

    def run_stages(self) -> None:
        campaign = self.campaign
        for stage in campaign.stages():
            tasks = [partial(task, self.run_one) for task in stage.tasks]
            with closing(run_in_order(tasks, stage.at_a_time, campaign.stop)) as kept:
                for results in kept:
                    for result in results:
                        write_run_reports(result)
                        campaign.results.append(result)
                        self._log(result)
            if campaign.stop.requested:
                return

    def run_one(self, planned: Planned) -> Result:
        """Run an experiment, which may have been run and logged before. Several threads may call this."""
        campaign, name = self.campaign, planned.name
        if campaign.stop.requested:
            raise Stopped
        folder = (planned.home or campaign.folder).run(name)
        if folder.mlflow.exists():
            try:
                with self.lock:
                    self.tracker.forget(folder)
            except TrackingError as error:
                self.watcher.warn(str(error))
        self.watcher.started(planned.index, planned.total, name)
        result = drive_experiment(
            planned.config,
            folder,
            campaign.launcher,
            campaign.drive.timeout_s,
            partial(self.watcher.line, name),
            campaign.stop,
        )
        self.watcher.ended(result)
        if result.status == KILLED:
            campaign.stop.request()
        return result

    def _log(self, result: Result) -> None:
        campaign = self.campaign
        try:
            with self.lock:
                run_id = self.tracker.log_result(
                    result, campaign.tags, campaign.parent, names_model=campaign.has_several_models
                )
            campaign.run_ids[result.name] = run_id
        except TrackingError as error:
            self._not_logged(error)

    def log_summary(self, summary: Summary | None) -> None:
        """Add to the children what only the whole tells, and close the parent run."""
        campaign = self.campaign
        if summary is None or campaign.parent is None:
            return
        try:
            for result in campaign.results:
                if result.name in summary.ratios and result.name in campaign.run_ids:
                    run_id = campaign.run_ids[result.name]
                    self.tracker.log_metrics(run_id, summary.ratios[result.name], result.config)
            if summary.figures:
                self.tracker.log_metrics(campaign.parent, summary.figures)
            self.tracker.finish_parent(
                campaign.parent,
                campaign.status,
                summary.description,
                summary.files,
                summary.table,
                summary.tags,
                summary.view,
            )
        except TrackingError as error:
            self._not_logged(error)

    def _not_logged(self, error: TrackingError) -> None:
        self.campaign.not_logged = error
        self.watcher.warn(str(error))


def new_name(kind: str) -> str:
    """A name from the time, for a campaign that the user did not name."""
    return f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}"
