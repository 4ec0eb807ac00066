"""Runs jobs in child processes on this machine; estimates are forks of a process with all imports done."""

from collections.abc import Callable
from pathlib import Path

import psutil

from dpprof.drive.launch.child import Child
from dpprof.drive.launch.forks import Forks
from dpprof.drive.launch.job import Job
from dpprof.drive.launch.launcher import Handle
from dpprof.drive.launch.ranks import Ranks, all_here
from dpprof.drive.ncu import program


class LocalLauncher:
    """Runs jobs in child processes on this machine."""

    can_end_jobs = True
    scratch: Path | None = None

    def __init__(self) -> None:
        self.machine = LocalMachine()
        self._forks = Forks()

    def slots_for(self, job: Job) -> int:
        """Return 1: measured jobs would share processors, memory bandwidth and the GPU. 2 for estimates."""
        return 1 if job.is_measured else 2

    def submit(self, job: Job, on_line: Callable[[str], None]) -> Handle:
        """Start the job's process, or one per rank."""
        if job.num_ranks:
            return Ranks(job, on_line, all_here(job.num_ranks))
        return Child(job, on_line, forks=self._forks)


class LocalMachine:
    """This machine."""

    def cuda_available(self) -> bool:
        """Tell if torch finds a CUDA device. Takes seconds, to import torch: check options first."""
        import torch

        return torch.cuda.is_available()

    def busy_pct(self) -> float:
        """Percentage of the processors in use, over the half second that it takes."""
        return psutil.cpu_percent(interval=0.5)

    def ncu(self, device: str) -> program.Ncu:
        """Return Nsight Compute, if it probably works. Raises CountersUnavailable."""
        return program.require(device)
