"""A sweep: every experiment of a grid in a process of its own, each a child of one MLflow run."""

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Protocol

from dpprof.config.experiment import DriveConfig, ExperimentConfig
from dpprof.drive.counters import can_count_now
from dpprof.drive.run import drive_experiment, rendered
from dpprof.drive.workers import run_jobs
from dpprof.errors import ConfigError, ExperimentsFailed, Interrupted, TrackingError, Undecided
from dpprof.figures.gradient_verdict import CANNOT_TELL, FAIL
from dpprof.figures.results import FAILED, FINISHED, KILLED, Result, read_result
from dpprof.process import finish_undisturbed
from dpprof.record.folder import SweepFolder
from dpprof.reports.comparison import export
from dpprof.reports.comparison.data import ComparisonData
from dpprof.reports.comparison.markdown import to_markdown
from dpprof.reports.sweep_reports import write_sweep_reports
from dpprof.tracking.tracker import Tracker

_RATIOS_OF_TIMES = ("vs_standard/latency/", "vs_standard/throughput/")


class Watcher(Protocol):
    """Is told how a sweep proceeds."""

    def started(self, index: int, total: int, name: str) -> None:
        """Experiment `index` (from 1) of `total` begins."""

    def line(self, name: str, text: str) -> None:
        """The measuring process of an experiment says something."""

    def ended(self, result: Result) -> None:
        """The experiment ended, one way or another."""

    def warn(self, text: str) -> None:
        """Something the user must know, though the sweep goes on."""


@dataclass
class Sweep:
    """A named set of resolved experiments, and what came of them so far. `parent` is its MLflow run.

    `workers` of them run at a time: more than one for estimates only, as measured ones disturb each other.
    """

    name: str
    experiments: Mapping[str, ExperimentConfig]
    drive: DriveConfig
    kind: str = "sweep"
    workers: int = 1
    parent: str = ""
    results: list[Result] = field(default_factory=list)
    run_ids: dict[str, str] = field(default_factory=dict)
    comparison: ComparisonData | None = None
    all_logged: bool = True
    interrupted: bool = False

    @property
    def folder(self) -> SweepFolder:
        """Where its run folders lie."""
        return SweepFolder(Path(self.drive.runs_dir) / self.name)

    @property
    def status(self) -> str:
        """FINISHED, also with experiments out of memory: that is a finding, not a fault."""
        failed = faults(self.results) or checked(self.results, FAIL)
        return KILLED if self.interrupted else FAILED if failed else FINISHED


def new_name(kind: str) -> str:
    """A name from the time, for a sweep or a single run that the user did not name."""
    return f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}"


def faults(results: list[Result]) -> list[Result]:
    """The results that failed for another reason than lack of memory."""
    return [r for r in results if r.status == FAILED and r.failure is not None and r.failure.kind != "oom"]


def checked(results: list[Result], verdict: str) -> list[Result]:
    """The results on which the gradient check gave this verdict."""
    return [r for r in results if r.gradient_verdict is not None and r.gradient_verdict.word == verdict]


def raise_for_checks(results: list[Result], verdicts: Iterable[str] = (FAIL, CANNOT_TELL)) -> None:
    """Raise ExperimentsFailed (`fail`) or Undecided (`cannot tell`) if a gradient check ended so."""
    for verdict in verdicts:
        names = [result.name for result in checked(results, verdict)]
        said, kind = ("failed", ExperimentsFailed) if verdict == FAIL else ("could not tell", Undecided)
        if names:
            counted = f"{len(names)} of {len(results)} experiments"
            raise kind(f"the gradient check {said} in {counted}: {', '.join(names)}")


def reusable_results(sweep: Sweep, *, resume: bool) -> dict[str, Result]:
    """The finished results that a resumed sweep keeps, by run name.

    Not those that went without the hardware counters asked for where these can be had by now.
    Raises ConfigError if the sweep exists and was not to be resumed, or if one of its cells was measured
    with other settings than those given now.
    """
    if not resume:
        if sweep.folder.path.exists():
            raise ConfigError(
                f"sweep_name: got {sweep.name!r}, allowed: a new name, or resume=true to go on with it"
            )
        return {}
    kept = {}
    for name, config in sweep.experiments.items():
        folder = sweep.folder.run(name)
        if not folder.record.exists():
            continue
        result = read_result(folder)
        if result.status != FINISHED or can_count_now(result.config, result.record):
            continue
        for setting, value in vars(config).items():
            before = getattr(result.config, setting)
            if before != value:
                raise ConfigError(
                    f"resume: {folder.path} was measured with {setting}={before}, now {setting}={value}; "
                    "give the earlier value or a new sweep_name"
                )
        kept[name] = result
    return kept


def run_sweep(sweep: Sweep, kept: Mapping[str, Result], tracker: Tracker, watcher: Watcher) -> None:
    """Do every experiment that `kept` does not hold, log all of them, and write the summary.

    A failed experiment or an MLflow that went away does not stop it. Ctrl-C does: what is running is
    stopped, and what was measured is logged. Raises TrackingError if MLflow is not there at the start, and
    OSError if the runs folder can no longer be written.
    """
    earlier = sweep.folder.read_state().get("mlflow_run_id")
    shared = shared_settings(sweep.experiments)
    sweep.parent = tracker.start_parent(sweep.name, sweep.kind, shared, earlier)
    try:
        sweep.folder.write_state(sweep.kind, sweep.parent)
        for result in _driven(sweep, kept, tracker, watcher):
            sweep.interrupted = result.status == KILLED
            sweep.results.append(result)
            _log(sweep, result, tracker, watcher)
            if sweep.interrupted:
                break
        _finish(sweep, tracker, watcher)
    except KeyboardInterrupt:
        finish_undisturbed()
        sweep.interrupted = True
        _catch_up(sweep, tracker, watcher)
        _finish(sweep, tracker, watcher)
    except Exception as error:
        # The disk is full, or the folder has gone: nothing more can be kept, so nothing more is measured.
        with suppress(TrackingError):
            tracker.finish_parent(sweep.parent, FAILED, f"stopped: {error}")
        raise


def _driven(sweep: Sweep, kept: Mapping[str, Result], tracker: Tracker, watcher: Watcher) -> Iterator[Result]:
    """The result of every experiment, in order; of those kept the one that they have."""

    def drive(index: int, name: str, stop: Event | None = None) -> Result:
        if name in kept:
            return kept[name]
        watcher.started(index, len(sweep.experiments), name)
        config, folder = sweep.experiments[name], sweep.folder.run(name)
        result = drive_experiment(config, folder, sweep.drive, partial(watcher.line, name), stop)
        watcher.ended(result)
        return result

    places = list(enumerate(sweep.experiments, start=1))
    if sweep.workers > 1:
        for name in sweep.experiments:
            if name not in kept:
                _forget(sweep, name, tracker, watcher)
        yield from run_jobs([partial(drive, index, name) for index, name in places], sweep.workers)
        return
    for index, name in places:
        if name not in kept:
            _forget(sweep, name, tracker, watcher)
        yield drive(index, name)


def shared_settings(experiments: Mapping[str, ExperimentConfig]) -> dict[str, object]:
    """The settings that all experiments have in common, with the number of experiments."""
    configs = [dataclasses.asdict(config) for config in experiments.values()]
    shared = {
        name: value for name, value in configs[0].items() if all(config[name] == value for config in configs)
    }
    return shared | {"num_experiments": len(configs)}


def _catch_up(sweep: Sweep, tracker: Tracker, watcher: Watcher) -> None:
    """Log what was measured before Ctrl-C struck between an experiment's end and its place in MLflow."""
    seen = {result.name for result in sweep.results}
    for name in sweep.experiments:
        if name not in seen and sweep.folder.run(name).record.exists():
            sweep.results.append(rendered(sweep.folder.run(name)))
    for result in sweep.results:
        if result.name not in sweep.run_ids:
            _log(sweep, result, tracker, watcher)


def _forget(sweep: Sweep, name: str, tracker: Tracker, watcher: Watcher) -> None:
    try:
        tracker.forget(sweep.folder.run(name))
    except TrackingError as error:
        watcher.warn(str(error))


def _log(sweep: Sweep, result: Result, tracker: Tracker, watcher: Watcher) -> None:
    try:
        tags = {f"dpprof.{sweep.kind}": sweep.name}
        sweep.run_ids[result.name] = tracker.log_result(result, tags, sweep.parent)
    except TrackingError as error:
        sweep.all_logged = False
        watcher.warn(str(error))


def _finish(sweep: Sweep, tracker: Tracker, watcher: Watcher) -> None:
    """Write the comparison, add the ratios to the children, and close the parent run."""
    data, files = write_sweep_reports(sweep.folder, sweep.results)
    sweep.comparison, comparison = data, data.comparison
    try:
        for cell in comparison.cells:
            for run in cell.finished:
                if run.name in sweep.run_ids:
                    figures = comparison.ratios(cell, run)
                    if comparison.is_disturbed_at(cell):  # MLflow has no mark to show beside a figure
                        figures = {n: v for n, v in figures.items() if not n.startswith(_RATIOS_OF_TIMES)}
                    tracker.log_metrics(sweep.run_ids[run.name], figures, cell.config)
        tracker.finish_parent(sweep.parent, sweep.status, to_markdown(data), files, export.table(data))
    except TrackingError as error:
        sweep.all_logged = False
        watcher.warn(str(error))


def raise_for(sweep: Sweep) -> None:
    """Raise what the command should end with, if anything: stopped, failed, not logged, or not told."""
    if sweep.interrupted:
        done = sum(result.status == FINISHED for result in sweep.results)
        raise Interrupted(
            f"stopped; {done} of {len(sweep.experiments)} experiments are finished and kept in "
            f"{sweep.folder.path}. To go on, give the same options with sweep_name={sweep.name} resume=true"
        )
    failed = faults(sweep.results)
    if failed:
        names = ", ".join(result.name for result in failed)
        raise ExperimentsFailed(f"{len(failed)} of {len(sweep.experiments)} experiments failed: {names}")
    raise_for_checks(sweep.results, [FAIL])
    if not sweep.all_logged:
        raise TrackingError(
            "everything is measured, but not everything is in MLflow. "
            f"When it is back: dpprof log {sweep.folder.path}"
        )
    raise_for_checks(sweep.results)
