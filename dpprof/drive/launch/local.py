"""Runs every job in child processes of its own; estimates as forks of one that has imported all they need."""

from collections.abc import Callable
from pathlib import Path

from dpprof.drive.launch.child import Child
from dpprof.drive.launch.forks import Forks
from dpprof.drive.launch.job import Job
from dpprof.drive.launch.launcher import Handle
from dpprof.drive.launch.local_machine import LocalMachine
from dpprof.drive.launch.ranks import Ranks, all_here


class LocalLauncher:
    """Child processes on this machine."""

    can_end_jobs = True
    scratch: Path | None = None

    def __init__(self) -> None:
        self.machine = LocalMachine()
        self._forks = Forks()

    def slots_for(self, job: Job) -> int:
        """One: two at a time would share processors, memory bandwidth and the GPU. Two estimates may."""
        return 1 if job.is_measured else 2

    def submit(self, job: Job, on_line: Callable[[str], None]) -> Handle:
        """Start the job's process, or one for each of its ranks."""
        if job.num_ranks:
            return Ranks(job, on_line, all_here(job.num_ranks))
        return Child(job, on_line, forks=self._forks)
