"""Drives experiments together, whatever asks for them: a single run, a sweep, estimates, a fit, a test.

The one loop that starts experiments, stops them, and logs them: a campaign says where its experiments come
from and what is made of their results.
"""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from dpprof.config.drive import DriveConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.logbook import Logbook, Summary
from dpprof.drive.run import drive_experiment, write_pages
from dpprof.drive.stop import Stop, Stopped, stop_on_signals
from dpprof.drive.workers import run_in_order
from dpprof.drive.workload_check import refuse_unusable
from dpprof.errors import DpprofError, Interrupted, TrackingError, Undecided
from dpprof.figures.results import FAILED, FINISHED, KILLED, Result
from dpprof.record.check import CONTRACT
from dpprof.record.folder import SweepFolder
from dpprof.tracking.tracker import Tracker


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


@dataclass
class Campaign(ABC):
    """A named set of experiments, and what came of them so far. `parent` is its MLflow run, if it has one.

    The name is empty until the folder is claimed (`claim.py`), unless the user gave one.
    """

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
        assert self.name, "claimed before"
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
    def missing(self) -> list[str]:
        """The names of the experiments that came to no end."""
        return [result.name for result in self.results if result.was_cut_off]

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

    # Whether the same command can go on with it later.
    can_be_resumed = False

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
        """Raise the error that the command should end with, if any, but for what is not in MLflow."""

    @property
    def to_log(self) -> Path:
        """The folder to give to `dpprof log`."""
        return self.folder.path

    def end(self) -> None:
        """Raise the error that the command should end with, if any, with how to log what is not logged."""
        later = f"not everything is in MLflow; when it is back: dpprof log {shlex.quote(str(self.to_log))}"
        try:
            self.raise_for_end()
        except DpprofError as error:
            if self.not_logged is None:
                raise
            if not isinstance(error, Undecided):
                raise type(error)(f"{error}; {later}") from None
        if self.not_logged is not None:
            raise TrackingError(f"everything is measured, but {later}")


def run_campaign(campaign: Campaign, tracker: Tracker, watcher: Watcher) -> None:
    """Run all that a campaign asks for, log what it keeps, and write its summary.

    A failed experiment or an MLflow that went away does not stop it. Ctrl-C and its like do: what is running
    is stopped, and what was measured is logged. Raises ConfigError if the workload cannot be used and
    TrackingError if MLflow is not there, both before anything is started, and OSError if the runs folder can
    no longer be written.
    """
    book = Logbook(tracker, campaign.stop, watcher.warn)
    with closing(book), stop_on_signals(campaign.stop):
        try:
            _open(campaign, book)
            _run(campaign, book, watcher)
        finally:
            campaign.not_logged = book.not_logged
            if campaign.interrupted:
                with suppress(TrackingError):
                    book.do(tracker.end_given, KILLED)


def _open(campaign: Campaign, book: Logbook) -> None:
    """Check the workload, then open the store and the parent run."""
    try:
        experiment = campaign.experiment_to_check()
        if experiment is not None:
            refuse_unusable(
                experiment, campaign.checked, campaign.launcher, campaign.drive.timeout_s, campaign.stop
            )
        book.do(book.tracker.open)
        campaign.parent = book.do(campaign.open_parent, book.tracker)
    except TrackingError:
        if campaign.interrupted:
            raise Interrupted("stopped before anything was measured") from None
        raise


def _run(campaign: Campaign, book: Logbook, watcher: Watcher) -> None:
    driver = _Driver(campaign, book, watcher)
    try:
        driver.run_stages()
        book.close_parent(campaign, campaign.summarize())
    except Exception as error:
        # The disk is full, or the folder has gone: nothing more can be kept, so nothing more is measured.
        if campaign.parent is not None:
            book.attempt(book.tracker.finish_parent, campaign.parent, FAILED, f"stopped: {error}")
        raise


@dataclass
class _Driver:
    """What the experiments of a campaign have in common while they run."""

    campaign: Campaign
    book: Logbook
    watcher: Watcher

    def run_stages(self) -> None:
        campaign = self.campaign
        for stage in campaign.stages():
            tasks = [partial(task, self.run_one) for task in stage.tasks]
            with closing(run_in_order(tasks, stage.at_a_time, campaign.stop)) as kept:
                for results in kept:
                    for result in results:
                        write_pages(result, self.watcher.warn)
                        campaign.results.append(result)
                        self.book.log(campaign, result)
            if campaign.stop.requested:
                return

    def run_one(self, planned: Planned) -> Result:
        """Run an experiment, which may have been run and logged before. Several threads may call this."""
        campaign, name = self.campaign, planned.name
        if campaign.stop.requested:
            raise Stopped
        folder = (planned.home or campaign.folder).run(name)
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
