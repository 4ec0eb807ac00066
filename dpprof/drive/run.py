"""Drives one experiment: makes its folder, has it measured, and makes sure that the folder says how it ended,
whatever happened to the measuring process."""

from collections.abc import Callable

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive import counters
from dpprof.drive.endings import checked_result, failed_result, write_how_it_ended
from dpprof.drive.jobs import run_job
from dpprof.drive.launch.job import measuring_job
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.stop import Stop, Stopped
from dpprof.figures.results import Result, read_result
from dpprof.record.folder import RunFolder
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
    """
    return _measured(config, folder, launcher, timeout_s, on_line, stop or Stop())


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

    ended = run_job(launcher, measuring_job(folder, timeout_s), pass_on, stop)
    write_how_it_ended(config, folder, ended, timeout_s)
    if config.counters != "off" and folder.read_error() is None:
        record = folder.read_record()
        if record is not None:
            counters.count(config, folder, record, launcher, timeout_s, on_line, stop)


def rendered(folder: RunFolder) -> Result:
    """The result of a run folder, with the pages that it lacks or has from another version rendered."""
    result = read_result(folder)
    write_run_reports(result)
    return result
