"""Drives one experiment: makes its folder, has it measured, and makes sure that the folder says how it ended,
whatever happened to the measuring process."""

import signal
from collections.abc import Callable

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive import counters
from dpprof.drive.jobs import run_job
from dpprof.drive.launch.job import Exit, measuring_job
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.stop import Stop
from dpprof.errors import DpprofError
from dpprof.figures.results import Result, read_result
from dpprof.record.folder import RunFolder
from dpprof.record.record import Failure, Memory
from dpprof.reports.run_reports import write_run_reports
from dpprof.vocabulary.log_lines import SAID

_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}


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
    """
    folder.create(config)
    refused = counters.refuse_early(config, launcher.machine)
    if refused is not None:
        folder.write_error(refused)
        return read_result(folder)
    stop = stop or Stop()

    def pass_on(line: str) -> None:
        if line.startswith(SAID):
            on_line(line.removeprefix(SAID))

    ended = run_job(launcher, measuring_job(folder, timeout_s), pass_on, stop)
    write_how_it_ended(folder, ended, timeout_s)
    if config.counters != "off" and folder.read_error() is None:
        record = folder.read_record()
        if record is not None:
            counters.count(config, folder, record, launcher, timeout_s, on_line, stop)
    return read_result(folder)


def write_pages(result: Result, warn: Callable[[str], None]) -> None:
    """Write the pages that a run's folder lacks or has in another version; warns if it is too damaged."""
    try:
        write_run_reports(result)
    except DpprofError as error:
        warn(f"{result.name} lacks pages: {error}")


def write_how_it_ended(folder: RunFolder, ended: Exit, timeout_s: float) -> None:
    """Write into the folder what the measuring process could not say itself.

    If the clean pass had finished, its figures stand: the pass in which the process ended is marked as
    failed. Otherwise the folder gets an `error.json`.
    """
    failure = folder.read_error()
    if ended.interrupted:
        folder.write_error(Failure("interrupted", "stopped by the user", memory=_last_memory(failure, ended)))
        return
    how = _how_it_ended(folder, ended, timeout_s, failure)
    if how is None:
        return
    kind, message = how
    record = folder.read_record()
    if record is not None and record.headline_finished:
        for outcome in record.passes.values():
            if outcome.status == "running" or (outcome.reason or "").startswith("KeyboardInterrupt"):
                outcome.status, outcome.reason = "failed", f"{kind}: {message}"
        folder.write_record(record)
        folder.error.unlink(missing_ok=True)
    else:
        folder.write_error(Failure(kind, message, memory=_last_memory(failure, ended)))


def _how_it_ended(
    folder: RunFolder, ended: Exit, timeout_s: float, failure: Failure | None
) -> tuple[str, str] | None:
    """Kind and message of an end that the measuring process did not explain itself; None if it did."""
    if ended.timed_out:
        return "timeout", f"stopped after timeout_s={timeout_s:g} seconds"
    if failure is not None and failure.kind == "interrupted":
        return "killed", "ended by SIGTERM from outside"
    if ended.code == -signal.SIGKILL and ended.oom_killed:
        return "oom", "the kernel's out-of-memory killer ended the process (SIGKILL)"
    if ended.code == -signal.SIGKILL:
        return "killed", "ended by SIGKILL from outside; the kernel reports no lack of memory"
    if ended.code == -signal.SIGABRT and "bad_alloc" in _end_of_log(folder):
        return "oom", "an allocation outside torch's allocator failed (std::bad_alloc); see run.log"
    if ended.code < 0:
        kind = "error" if -ended.code in _CRASHES else "killed"
        return kind, f"the process was ended by {signal.Signals(-ended.code).name}; see run.log"
    if failure is not None or ended.code == 0:
        return None
    return "error", f"the process ended with exit code {ended.code} and left no answer; see run.log"


def _end_of_log(folder: RunFolder) -> str:
    return folder.log.read_text(encoding="utf-8", errors="replace")[-4000:] if folder.log.exists() else ""


def _last_memory(failure: Failure | None, ended: Exit) -> Memory:
    memory = failure.memory if failure is not None else Memory()
    memory.peak_rss = memory.peak_rss or ended.peak_rss
    return memory
