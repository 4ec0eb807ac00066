"""The counters pass from outside: one more measuring process, under Nsight Compute.

It never affects the other figures. Where it cannot count, `counters=auto` skips it and `counters=ncu` fails
the run.
"""

import time
from collections.abc import Callable

from dpprof.config.counter_metrics import metric_names, resolve
from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.jobs import Runner, Stopped, run_job
from dpprof.drive.launch.job import COUNTED_STEP, Job, measuring_command
from dpprof.drive.launch.launcher import Machine
from dpprof.drive.ncu import program
from dpprof.drive.ncu.program import first_error, raise_known
from dpprof.drive.ncu.report import by_kernel, read_csv
from dpprof.errors import CountersError, CountersUnavailable
from dpprof.record.counters import CounterResult
from dpprof.record.files import write_text
from dpprof.record.folder import RunFolder
from dpprof.record.record import Failure, FailureKind, PassOutcome, PassStatus, Record
from dpprof.vocabulary.messages import SAID, is_oom

_PASS = "counters"
_PROFILED = "==PROF== Profiling "


class _TimedOut(CountersError):
    """The pass ran into its time-out."""


def can_count_now(config: ExperimentConfig, record: Record | None, machine: Machine) -> bool:
    """Tell whether a run lacks the counters it asked for and the machine can count now."""
    goes_without = config.counters != "off" and record is not None and record.counters is None
    return goes_without and lacking(config, machine) is None


def lacking(config: ExperimentConfig, machine: Machine) -> str | None:
    """Return what the machine lacks to count, if anything."""
    try:
        machine.ncu(config.device)
    except CountersUnavailable as error:
        return str(error)
    return None


def count(config: ExperimentConfig, folder: RunFolder, record: Record, runner: Runner) -> None:
    """Count one step of an experiment whose other passes are done, and add the counters to its record.

    Errors go into the pass's outcome and, with counters=ncu, into `error.json`.
    """
    outcome = record.passes[_PASS] = PassOutcome(PassStatus.RUNNING)
    folder.write_record(record)
    runner.on_line(f"{_PASS} pass")
    started = time.perf_counter()
    kind = FailureKind.ERROR
    try:
        record.counters = _count(config, folder, runner)
        record.environment |= {f"ncu_{name}": value for name, value in record.counters.settings.items()}
        outcome.status = PassStatus.FINISHED
    except (Stopped, CountersError, OSError) as error:
        outcome.status, outcome.reason = PassStatus.FAILED, str(error)
        # Ctrl-C in a terminal also ends a child process, which then only seems to have failed.
        if runner.stop.requested or isinstance(error, Stopped):
            outcome.reason = "stopped by the user"
            folder.write_error(Failure(FailureKind.INTERRUPTED, outcome.reason))
            return
        if isinstance(error, CountersUnavailable):
            outcome.status = PassStatus.SKIPPED
        elif isinstance(error, _TimedOut):
            kind = FailureKind.TIMEOUT
        elif is_oom(error):
            kind = FailureKind.OOM
    finally:
        outcome.seconds = time.perf_counter() - started
        record.ended_at = time.time()
        folder.write_record(record)
    if config.counters == "ncu" and outcome.status != PassStatus.FINISHED:
        folder.write_error(Failure(kind, outcome.reason or ""))


def _count(config: ExperimentConfig, folder: RunFolder, runner: Runner) -> CounterResult:
    ncu = runner.launcher.machine.ncu(config.device)
    settings = {"version": ncu.version(), **program.SETTINGS}
    wanted = metric_names(config.measuring.counter_metrics)
    names, missing = resolve(wanted, ncu.available_metrics())
    folder.counter_reports.mkdir(exist_ok=True)
    base, report = folder.counter_report(config, ""), folder.counter_report(config, ".ncu-rep")
    command = ncu.count_command(base, names, measuring_command(folder.path, COUNTED_STEP))
    job = Job(folder, command, folder.counter_log, runner.timeout_s)
    ended = run_job(runner.launcher, job, _progress(runner.on_line), runner.stop)
    if ended.interrupted:
        raise Stopped
    if ended.timed_out:
        raise _TimedOut(
            f"stopped after timeout_s={runner.timeout_s:g} seconds: every kernel is replayed for its "
            "metrics, which takes long; raise timeout_s, or ask for fewer counter_metrics"
        )
    if ended.code or not report.exists():
        output = folder.counter_log.read_text(encoding="utf-8", errors="replace")
        raise_known(output)
        raise CountersError(f"{_why(output, ended.code)}; see {folder.counter_log.name}")
    runner.on_line("reading the counters")
    text = ncu.to_csv(report)
    table = folder.counter_report(config, ".csv")
    write_text(table, text)
    found = by_kernel(read_csv(text, table.name), [name for name in wanted if name not in missing])
    found.settings = settings
    found.missing |= missing
    return found


def _progress(on_line: Callable[[str], None]) -> Callable[[str], None]:
    """Pass on the lines of the measured process, and count the finished kernels."""
    num_kernels = 0

    def tell(line: str) -> None:
        nonlocal num_kernels
        if line.startswith(_PROFILED):
            num_kernels += 1
            on_line(f"{_PASS} pass: {num_kernels:,} kernels")
        elif line.startswith(SAID):
            on_line(f"{_PASS} pass: {line.removeprefix(SAID)}")

    return tell


def _why(output: str, code: int) -> str:
    """Return the error of the measured process if ncu reports one, else ncu's own."""
    error = first_error(output)
    said = [line.removeprefix(SAID).strip() for line in output.splitlines() if line.startswith(SAID)]
    if said and error is not None and error.startswith("The application returned an error code"):
        return f"the measured process failed under ncu: {said[-1]}"
    return f"ncu failed: {error or f'it ended with exit code {code} and left no report'}"
