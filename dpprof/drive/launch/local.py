"""Runs jobs in child processes on this machine; estimates are forks of a process with all imports done.

A measured job's process starts while the job before it ends (`spare.py`), and imports meanwhile.
"""

import ast
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dpprof.drive.launch.child import Child, environment_of_jobs
from dpprof.drive.launch.forks import Forks
from dpprof.drive.launch.job import Job
from dpprof.drive.launch.launcher import Handle
from dpprof.drive.launch.ranks import Ranks, all_here
from dpprof.drive.launch.spare import Spares
from dpprof.drive.ncu import program
from dpprof.process import others_processor_s
from dpprof.vocabulary.messages import SAID, TIMES_TAKEN

# Least time over which the processors' use is told.
_LEAST_S = 0.5


class LocalLauncher:
    """Runs jobs in child processes on this machine."""

    can_end_jobs = True
    scratch: Path | None = None

    def __init__(self) -> None:
        self.machine = LocalMachine()
        self._forks = Forks()
        self._spares = Spares()

    def slots_for(self, job: Job) -> int:
        """Return 1: measured jobs would share processors, memory bandwidth and the GPU. 2 for estimates."""
        return 1 if job.is_measured else 2

    def submit(self, job: Job, on_line: Callable[[str], None]) -> Handle:
        """Start the job's process, or one per rank."""
        if job.num_ranks:
            return Ranks(job, on_line, all_here(job.num_ranks))

        def pass_on(line: str) -> None:
            if line == SAID + TIMES_TAKEN and job.another_follows:
                self.start_early()
            on_line(line)

        spare = self._spares.take(job, environment_of_jobs())
        return Child(job, pass_on, forks=self._forks, spare=spare)

    def start_early(self) -> None:
        """Start a process for a measured job that comes soon, so that it imports meanwhile."""
        self._spares.start(environment_of_jobs())


class LocalMachine:
    """This machine."""

    def __init__(self) -> None:
        self._seen_at, self._others_s = time.monotonic(), others_processor_s()

    def cuda_available(self) -> bool:
        """Tell if torch finds a CUDA device. Takes seconds if it was built for GPUs: check options first."""
        if not is_built_for_gpus():
            return False

        import torch

        return torch.cuda.is_available()

    def busy_pct(self) -> float:
        """Percentage of the processors that others have used since this object was made; 0 if unknown.

        Waits until that is half a second.
        """
        time.sleep(max(0.0, _LEAST_S - (time.monotonic() - self._seen_at)))
        seconds, others_s = time.monotonic() - self._seen_at, others_processor_s()
        if others_s is None or self._others_s is None:
            return 0.0
        busy = (others_s - self._others_s) / (seconds * len(os.sched_getaffinity(0)))
        return min(100.0, max(0.0, 100 * busy))

    def ncu(self, device: str) -> program.Ncu:
        """Return Nsight Compute, if it probably works. Raises CountersUnavailable."""
        return program.require(device)


def is_built_for_gpus() -> bool:
    """Tell if torch was built for GPUs, without importing it; True if that is not known."""
    found = importlib.util.find_spec("torch") if "torch" not in sys.modules else None
    if found is None or found.origin is None:
        return True
    try:
        told = ast.parse(Path(found.origin).with_name("version.py").read_text())
        typed = (line for line in told.body if isinstance(line, ast.AnnAssign))
        versions = {ast.unparse(line.target): ast.unparse(line.value) for line in typed if line.value}
        return any(versions[kind] != "None" for kind in ("cuda", "hip"))
    except (OSError, ValueError, SyntaxError, KeyError):  # another build's file
        return True
