"""Drives one experiment: makes its folder, has it measured, and makes sure that the folder says how it ended,
whatever happened to the measuring process."""

import dataclasses
import shutil
from collections.abc import Callable

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive import counters
from dpprof.drive.endings import checked_result, failed_result, has_no_room, write_how_it_ended
from dpprof.drive.jobs import run_job
from dpprof.drive.launch.job import measuring_job
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.stop import Stop, Stopped
from dpprof.errors import DpprofError, describe_error
from dpprof.figures.results import FAILED, KILLED, Result, read_result
from dpprof.record.again import beside, discard, left_over, mark_unlogged, replace
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.reports.run_reports import write_run_reports
from dpprof.vocabulary.log_lines import SAID


def drive_experiment(
    config: ExperimentConfig,
    folder: RunFolder,
    launcher: Launcher,
    timeout_s: float,
    on_line: Callable[[str], None],
    stop: Stop | None = None,
) -> Result:
    """Measure a resolved experiment in the folder; its pages are the caller's.

    `timeout_s` is for the experiment, and again for its counters. `on_line` gets what the measuring process
    says. The result's status is KILLED if `stop` ended it; the caller decides what follows.
    Raises OSError if nothing can be kept of it, as on a full disk; any other fault makes a failed result.

    An experiment that has a folder already is done again beside it: the folder keeps what it has until there
    are new figures.
    """
    if not folder.path.exists():
        return _measured(config, folder, launcher, timeout_s, on_line, stop or Stop())
    again = _measured(config, beside(folder), launcher, timeout_s, on_line, stop or Stop())
    return _settled(folder, again)


def _measured(
    config: ExperimentConfig,
    folder: RunFolder,
    launcher: Launcher,
    timeout_s: float,
    on_line: Callable[[str], None],
    stop: Stop,
) -> Result:
    try:
        _measure(config, folder, launcher, timeout_s, on_line, stop)
        return checked_result(config, folder)
    except Stopped:
        raise
    except Exception as error:
        return failed_result(config, folder, error, stopped=stop.requested)


def _measure(
    config: ExperimentConfig,
    folder: RunFolder,
    launcher: Launcher,
    timeout_s: float,
    on_line: Callable[[str], None],
    stop: Stop,
) -> None:
    folder.create(config)
    refused = counters.refuse_early(config, launcher.machine)
    if refused is not None:
        folder.write_error(refused)
        return

    def pass_on(line: str) -> None:
        if line.startswith(SAID):
            on_line(line.removeprefix(SAID))

    ended = run_job(launcher, measuring_job(config, folder, timeout_s), pass_on, stop)
    write_how_it_ended(config, folder, ended, timeout_s)
    if config.counters != "off" and folder.read_error() is None:
        record = folder.read_record()
        if record is not None:
            counters.count(config, folder, record, launcher, timeout_s, on_line, stop)


def settle(home: SweepFolder) -> None:
    """Keep or drop the figures that a killed dpprof left of experiments that were done again."""
    for folder in [*left_over(home), *left_over(home.foreseen)]:
        again = _readable(beside(folder))
        if again is not None and again.figures is not None and _takes_over(again, _readable(folder)):
            replace(folder)
        else:
            discard(folder)


def _settled(folder: RunFolder, again: Result) -> Result:
    """What an experiment comes to that was done again."""
    earlier = _readable(folder)
    if _takes_over(again, earlier):
        replace(folder)
        return read_result(folder)
    if earlier is None:
        discard(folder)
        return dataclasses.replace(again, name=folder.name, folder=folder)
    failure = again.failure or earlier.failure
    if failure is not None and again.status == FAILED:
        failure = dataclasses.replace(failure, message=f"done again, it failed: {failure.message}")
        folder.write_error(failure)
        if again.folder.log.exists():
            shutil.copyfile(again.folder.log, folder.log)
        mark_unlogged(folder, folder)
    discard(folder)
    return dataclasses.replace(earlier, failure=failure)


def _takes_over(again: Result, earlier: Result | None) -> bool:
    """Whether what was done again replaces what was there: not if figures would be lost."""
    if earlier is None or earlier.figures is None:
        return again.figures is not None or again.status != KILLED
    return again.figures is not None and (again.is_complete or _finished(again) >= _finished(earlier))


def _finished(result: Result) -> set[str]:
    passes = result.record.passes if result.record else {}
    return {name for name, outcome in passes.items() if outcome.status == "finished"}


def _readable(folder: RunFolder) -> Result | None:
    try:
        return read_result(folder)
    except DpprofError:
        return None


def write_pages(result: Result, warn: Callable[[str], None]) -> None:
    """Write the pages that a run's folder lacks or has in another version; warns of what is in the way.

    Raises OSError if there is no room.
    """
    try:
        write_run_reports(result)
    except Exception as error:
        if has_no_room(error):
            raise
        warn(f"{result.name}: not all of its pages were written: {describe_error(error)}")
