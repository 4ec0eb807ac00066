"""Starts, stops and logs the experiments of a campaign: a single run, a sweep, estimates, a fit, a test."""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from dpprof.config.drive import DriveConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.endings import has_no_room
from dpprof.drive.jobs import Runner, Stop, Stopped, stop_on_signals
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.logbook import Logbook
from dpprof.drive.run import drive_experiment, earlier_result
from dpprof.drive.workload_check import refuse_unusable
from dpprof.errors import DpprofError, Interrupted, TrackingError, Undecided, describe_error
from dpprof.record.check import CONTRACT
from dpprof.record.figures.results import FAILED, FINISHED, KILLED, Result
from dpprof.record.folder import SweepFolder, SweepState
from dpprof.record.lock import LOCK, left_by
from dpprof.tracking.tracker import Summary, Tracker
from dpprof.vocabulary.messages import TIMES_TAKEN

T = TypeVar("T")


class Watcher(Protocol):
    """Observer of a campaign's progress."""

    def started(self, index: int, total: int, name: str) -> None:
        """Experiment `index` (from 1) of `total` starts."""

    def line(self, name: str, text: str) -> None:
        """The measuring process of an experiment printed a line."""

    def ended(self, result: Result) -> None:
        """An experiment ended, successfully or not."""

    def warn(self, text: str) -> None:
        """A warning for the user; the campaign goes on."""


@dataclass(frozen=True)
class Planned:
    """Experiment `index` of `total` (from 1), in folder `home` and with `timeout_s` if not the campaign's.

    `another_follows` if another one is measured after it.
    """

    index: int
    total: int
    name: str
    config: ExperimentConfig
    home: SweepFolder | None = None
    timeout_s: float | None = None
    another_follows: bool = False


# Runs an experiment to its end. Raises Stopped if the user stopped everything before it started.
RunOne = Callable[[Planned], Result]
# Asks for experiments one by one, and returns the results to keep: those get pages and a run in MLflow.
Task = Callable[[RunOne], Sequence[Result]]


@dataclass(frozen=True)
class Stage:
    """Tasks, `at_a_time` of them in parallel; if 1, in the main thread."""

    tasks: Sequence[Task]
    at_a_time: int


@dataclass
class Campaign(ABC):
    """Named set of experiments with results so far. `parent` is its MLflow run's id, if any.

    The name is empty until the folder is claimed (`claim.py`), unless the user gave one.
    """

    # Of its folder and its parent run; empty if it has none.
    kind = ""
    # Whether the same command can resume it.
    can_be_resumed = False
    # Whether results of earlier campaigns that would come out the same again are taken.
    reuses_results = False
    # Depth of the check of its workload before anything else (`record/check.py`).
    checked = CONTRACT

    name: str
    drive: DriveConfig
    launcher: Launcher
    parent: str | None = field(default=None, init=False)
    results: list[Result] = field(default_factory=list, init=False)
    run_ids: dict[str, str] = field(default_factory=dict, init=False)
    # The last thing that MLflow refused.
    not_logged: TrackingError | None = field(default=None, init=False)
    stop: Stop = field(default_factory=Stop, init=False)
    # Observes it while it runs.
    watcher: Watcher = field(init=False)
    # Resolved experiments by run name, if they are known before any is run.
    experiments: Mapping[str, ExperimentConfig] = field(default_factory=dict, init=False)

    @property
    def folder(self) -> SweepFolder:
        """Folder that holds the run folders."""
        assert self.name, "claimed before"
        return SweepFolder(Path(self.drive.runs_dir) / self.name)

    @property
    def interrupted(self) -> bool:
        """True if the user stopped it."""
        return self.stop.requested

    @property
    def status(self) -> str:
        """MLflow status of the parent run."""
        return KILLED if self.interrupted else FAILED if self.has_failed() else FINISHED

    @property
    def missing(self) -> list[str]:
        """Names of the experiments that were cut off."""
        return [result.name for result in self.results if result.was_cut_off]

    @property
    def names(self) -> Sequence[str]:
        """Names of all its experiments, if they are known before they are run."""
        return ()

    @property
    def params(self) -> Mapping[str, object]:
        """Params of its parent run."""
        return {}

    @property
    def has_several_models(self) -> bool:
        """True if the names of its MLflow runs include the model: its experiments do not share one."""
        return len({config.model_title for config in self.experiments.values()}) != 1

    def experiment_to_check(self) -> ExperimentConfig | None:
        """Experiment whose workload is checked, the same for all; None if there is nothing to check."""
        return next(iter(self.experiments.values()), None)

    @abstractmethod
    def stages(self) -> Iterator[Stage]:
        """Yield the stages in order; each may depend on the results of earlier ones."""

    def has_failed(self) -> bool:
        """Tell whether its parent run counts as failed: not if a check merely could not tell."""
        try:
            self.raise_if_failed()
        except DpprofError as error:
            return not isinstance(error, Undecided)
        return False

    def summarize(self) -> Summary | None:
        """Write the summary of all results into the folder. Returns the content of the parent run, if any."""
        return None

    def raise_if_failed(self) -> None:  # noqa: B027
        """Raise the error that the command ends with if it was not stopped, if any, except MLflow's."""

    @property
    def to_log(self) -> Path:
        """Folder to pass to `dpprof log`."""
        return self.folder.path

    @property
    def stopped(self) -> str:
        """Message for when the user stopped it."""
        return f"stopped; what was measured is kept in {self.to_log}"

    def end(self) -> None:
        """Raise Interrupted if stopped, or what failed, if anything; say how to log what MLflow lacks."""
        later = f"not everything is in MLflow; when it is back: dpprof log {shlex.quote(str(self.to_log))}"
        try:
            if self.interrupted:
                raise Interrupted(self.stopped)
            self.raise_if_failed()
        except DpprofError as error:
            if self.not_logged is None:
                raise
            if not isinstance(error, Undecided):
                raise type(error)(f"{error}; {later}") from None
        if self.not_logged is not None:
            raise TrackingError(f"everything is measured, but {later}")


def run_campaign(
    campaign: Campaign,
    tracker: Tracker,
    watcher: Watcher,
    write_reports: Callable[[Result], None],
    prepare_reports: Callable[[], None] = lambda: None,
) -> None:
    """Run a campaign's experiments, log what it keeps, and write its summary and the missing pages.

    Calls `prepare_reports` while an experiment ends that needs no quiet machine any more.
    A failed experiment or an MLflow that went away does not stop it; Ctrl-C stops what runs and logs what was
    measured. Raises, before anything starts, ConfigError if the workload cannot be used and TrackingError if
    MLflow is not there; OSError once the runs folder can no longer be written.
    """
    campaign.watcher = watcher
    for text in _left_behind(Path(campaign.drive.runs_dir)):
        watcher.warn(text)
    book = Logbook(tracker, campaign.stop, watcher.warn)
    with closing(book), stop_on_signals(campaign.stop):
        try:
            driver = _Driver(campaign, book, write_reports, prepare_reports)
            driver.open()
            driver.run()
        finally:
            campaign.not_logged = book.not_logged
            if campaign.interrupted:
                with suppress(TrackingError):
                    book.do(tracker.end_given, KILLED)


def _left_behind(runs_dir: Path) -> Iterator[str]:
    """Yield a sentence for each campaign whose driving process was killed."""
    for lock in sorted(runs_dir.glob(f"*/{LOCK}")):
        home = SweepFolder(lock.parent)
        num_runs = len(home.runs())
        if (num_runs or home.state.exists()) and (holder := left_by(lock.parent)):
            there = f"its {num_runs} run{'s' * (num_runs != 1)}" if num_runs else "what there is"
            yield (
                f"{lock.parent} was left by {holder}, which was killed: "
                f"dpprof log {shlex.quote(str(lock.parent))} logs {there}"
            )


@dataclass
class _Driver:
    campaign: Campaign
    book: Logbook
    write_reports: Callable[[Result], None]
    prepare_reports: Callable[[], None]

    def open(self) -> None:
        """Check the workload, and open MLflow and the parent run."""
        campaign, book, tracker = self.campaign, self.book, self.book.tracker
        try:
            experiment = campaign.experiment_to_check()
            if experiment is not None:
                limit_s = campaign.drive.timeout_s
                runner = Runner(campaign.launcher, limit_s, lambda line: None, campaign.stop)
                refuse_unusable(experiment, campaign.checked, runner)
            book.do(tracker.open)
            if campaign.kind:
                own = campaign.name, campaign.kind, campaign.params, campaign.folder
                campaign.parent = book.do(tracker.start_parent, *own)
        except TrackingError:
            if campaign.interrupted:
                raise Interrupted("stopped before anything was measured") from None
            raise

    def run(self) -> None:
        """Run all stages, and close the parent run."""
        parent, book = self.campaign.parent, self.book
        try:
            self._run_stages()
            self._close_parent(self.campaign.summarize())
        except Exception as error:
            # The disk is full or the folder is gone: nothing more can be kept, so nothing more is measured.
            if parent is not None:
                book.attempt(book.tracker.finish_parent, parent, FAILED, Summary(f"stopped: {error}"))
            raise

    def _run_stages(self) -> None:
        campaign = self.campaign
        if campaign.parent is not None:
            campaign.folder.write_state(SweepState(campaign.kind, [*campaign.names]))
        for stage in campaign.stages():
            tasks = [partial(self._done, task) for task in stage.tasks]
            with closing(run_in_order(tasks, stage.at_a_time, campaign.stop)) as kept:
                for results in kept:
                    for result in results:
                        self._report(result)
                        campaign.results.append(result)
                        self._log(result)
            if campaign.stop.requested:
                return

    def _report(self, result: Result) -> None:
        """Write a run's pages and warn of failures. Raises OSError if there is no room."""
        try:
            self.write_reports(result)
        except Exception as error:
            if has_no_room(error):
                raise
            self.campaign.watcher.warn(
                f"{result.name}: not all of its pages were written: {describe_error(error)}"
            )

    def _log(self, result: Result) -> None:
        campaign, book = self.campaign, self.book
        tags = {f"dpprof.{campaign.kind}": campaign.name} if campaign.kind else {}
        several, parent = campaign.has_several_models, campaign.parent
        run_id = book.attempt(book.tracker.log_result, result, tags, parent, names_model=several)
        if run_id is not None:
            campaign.run_ids[result.name] = run_id
            if left_out := result.folder.artifacts().left_out:
                self.campaign.watcher.warn(f"{result.name}: not uploaded: {', '.join(left_out)}")

    def _close_parent(self, summary: Summary | None) -> None:
        """Add to the child runs what depends on all results, and close the parent run."""
        campaign, book = self.campaign, self.book
        if summary is None or campaign.parent is None:
            return
        for result in campaign.results:
            if result.name in summary.ratios and result.name in campaign.run_ids:
                run_id, ratios = campaign.run_ids[result.name], summary.ratios[result.name]
                book.attempt(book.tracker.log_metrics, run_id, ratios, result.config)
        if summary.figures:
            book.attempt(book.tracker.log_metrics, campaign.parent, summary.figures)
        book.attempt(book.tracker.finish_parent, campaign.parent, campaign.status, summary)

    def _done(self, task: Task) -> Sequence[Result]:
        """Run a task and return its new results; reused ones are logged already. Thread-safe."""
        if not self.campaign.reuses_results:
            return task(self.run_one)
        made: set[Path] = set()

        def find_or_run(planned: Planned) -> Result:
            found = earlier_result(planned.home or self.campaign.folder, planned.name, planned.config)
            if found is None:
                found = self.run_one(planned)
                made.add(found.folder.path)
            return found

        results = {result.folder.path: result for result in task(find_or_run)}
        return [result for path, result in results.items() if path in made]

    def run_one(self, planned: Planned) -> Result:
        """Run one experiment. Thread-safe."""
        campaign, name = self.campaign, planned.name
        if campaign.stop.requested:
            raise Stopped
        folder = (planned.home or campaign.folder).run(name)
        campaign.watcher.started(planned.index, planned.total, name)
        timeout_s = planned.timeout_s or campaign.drive.timeout_s

        def on_line(text: str) -> None:
            if text == TIMES_TAKEN:
                self.prepare_reports()
            campaign.watcher.line(name, text)

        runner = Runner(campaign.launcher, timeout_s, on_line, campaign.stop, planned.another_follows)
        result = drive_experiment(planned.config, folder, runner)
        campaign.watcher.ended(result)
        if result.status == KILLED:
            campaign.stop.request()
        return result


def run_in_order(tasks: Sequence[Callable[[], T]], at_a_time: int, stop: Stop) -> Generator[T, None, None]:
    """Yield the tasks' results in order. If one at a time, run in this thread.

    Once `stop` is requested no more tasks start; running ones should return what they have, or raise Stopped.
    An error in one task stops the others and is raised.
    """

    def run(task: Callable[[], T]) -> list[T]:
        try:
            return [] if stop.requested else [task()]
        except Stopped:
            return []

    if at_a_time == 1:
        for task in tasks:
            yield from run(task)
        return
    with ThreadPoolExecutor(at_a_time) as pool:
        running = [pool.submit(run, task) for task in tasks]
        try:
            for future in running:
                yield from future.result()
        except BaseException:  # a fault, or nobody takes more results: the others must not go on
            stop.request()
            raise
