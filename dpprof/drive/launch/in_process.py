"""Runs an experiment in this process, for a debugger: no time-out, and no figures to rely on."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass

from dpprof.drive.launch.job import CHECK, Exit, Job, measuring_command
from dpprof.drive.launch.launcher import Handle
from dpprof.drive.launch.local import LocalLauncher
from dpprof.measure.entry import check_workload, interrupt, measure
from dpprof.process import stopping_signals
from dpprof.record.check import CheckFolder
from dpprof.record.folder import RunFolder
from dpprof.record.record import FailureKind
from dpprof.vocabulary.messages import SAID


@dataclass(frozen=True)
class Done:
    """Handle of a finished job."""

    exit: Exit

    def poll(self) -> Exit:
        """Return how it ended."""
        return self.exit

    def cancel(self) -> None:
        """Do nothing: it has ended."""


class InProcessLauncher(LocalLauncher):
    """Measures in this process; runs any other command, such as a profiler's, in a child process."""

    can_end_jobs = False

    def slots_for(self, job: Job) -> int:
        """One, in the main thread."""
        return 1

    def start_early(self) -> None:
        """Start nothing: no process is needed."""

    def submit(self, job: Job, on_line: Callable[[str], None]) -> Handle:
        """Run the job to its end, without a time-out. Output goes to the terminal."""
        if job.command == measuring_command(job.folder.path, CHECK):
            return Done(Exit(check_workload(CheckFolder(job.folder.path))))
        if job.num_ranks:
            on_line(f"{SAID}not in this process: each rank needs one of its own")
        if job.num_ranks or job.command != measuring_command(job.folder.path):
            return super().submit(job, on_line)
        on_line(f"{SAID}in this process")
        try:
            # A workload may leave another working directory, and other standard streams.
            with _interruptible(), chdir("."), redirect_stdout(sys.stdout), redirect_stderr(sys.stderr):
                code = measure(RunFolder(job.folder.path.absolute()))
        except KeyboardInterrupt:  # as the measuring came to its end
            return Done(Exit(1, interrupted=True))
        failure = job.folder.read_error()
        return Done(Exit(code, interrupted=failure is not None and failure.kind == FailureKind.INTERRUPTED))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let stopping signals such as Ctrl-C end the measuring, as in a measuring process."""
    before = {number: signal.signal(number, interrupt) for number in stopping_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
