"""A job's part as it runs on a node: what a task of a Slurm job does around the processes of the job.

The parts of a job have a folder in common, `Meeting`, in which they find each other and the orders of the
driving process.
"""

import signal
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path

from submitit import JobEnvironment

from dpprof.drive.launch.child import Child
from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.orders import POLL_S, end, obey
from dpprof.drive.launch.ranks import (
    LOOPBACK,
    OTHERS_S,
    Place,
    Ranks,
    all_here,
    free_port,
    interface_of,
)
from dpprof.record.files import write_text

# How long the first part may take to say where ranks meet.
_MEETING_S = 600.0


class Meeting:
    """A folder that all nodes and the driving process see."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told = path / "told"
        self._begun = path / "begun"
        self._failed = path / "failed"
        self._place = path / "place"

    def begin(self) -> None:
        """Say that the job has left the queue."""
        self._begun.touch()

    @property
    def has_begun(self) -> bool:
        """Whether it has."""
        return self._begun.exists()

    def fail(self) -> None:
        """Say that a rank has failed."""
        self._failed.touch()

    @property
    def has_failed(self) -> bool:
        """Whether one has."""
        return self._failed.exists()

    def choose(self, address: str, port: int) -> None:
        """Say where ranks meet."""
        write_text(self._place, f"{address} {port}")

    def chosen(self) -> tuple[str, int] | None:
        """Where they do, as soon as that was said; None if the job is to end before. Raises TimeoutError."""
        deadline = time.monotonic() + _MEETING_S
        while not self._place.exists():
            if self.has_failed or self.told.exists():
                return None
            if time.monotonic() > deadline:
                raise TimeoutError(f"the first node said nothing for {_MEETING_S:g} s")
            time.sleep(POLL_S)
        address, _, port = self._place.read_text().partition(" ")
        return address, int(port)


@dataclass(frozen=True)
class Work:
    """A job with the numbers of ranks of its parts (0: one process that is no rank)."""

    job: Job
    counts: tuple[int, ...]
    meeting: Path

    def do(self) -> Exit:
        """Run the part that is this task's. Returns how its processes ended, and where."""
        environment, meeting = JobEnvironment(), Meeting(self.meeting)
        try:
            meeting.begin()
            processes = self._start(environment, meeting)
            if processes is None:
                ended = self._not_begun(environment, followed=meeting.has_failed)
            else:
                ended = _end_of(processes, meeting)
        except BaseException:
            meeting.fail()  # the others would wait for this part
            raise
        if ended.code:
            meeting.fail()
        return replace(ended, environment={"node": socket.gethostname(), "slurm_job": environment.job_id})

    def _start(self, environment: JobEnvironment, meeting: Meeting) -> Child | Ranks | None:
        """Begin the part's processes; None if the job is to end before."""
        own = environment.global_rank
        count, first = self.counts[own], sum(self.counts[:own])
        if not count:
            return Child(self.job, _ignore)
        if len(self.counts) == 1:
            return Ranks(self.job, _ignore, all_here(count))
        is_one_node = environment.num_nodes == 1
        if own == 0:
            address = LOOPBACK if is_one_node else socket.gethostname()
            meeting.choose(address, free_port(LOOPBACK if is_one_node else ""))
        interface = interface_of(LOOPBACK) if is_one_node else ""
        if (chosen := meeting.chosen()) is None:
            return None
        return Ranks(self.job, _ignore, Place(first, count, self.job.num_ranks, *chosen, interface))

    def _not_begun(self, environment: JobEnvironment, *, followed: bool) -> Exit:
        """The end of ranks that never began."""
        one = Exit(-signal.SIGTERM, followed=followed, interrupted=not followed)
        return Exit.of_ranks([one] * self.counts[environment.global_rank])


def run(work: Work) -> Exit:
    """What Slurm's tasks call."""
    return work.do()


def _end_of(processes: Child | Ranks, meeting: Meeting) -> Exit:
    """Wait for a part's processes to end. They are ended when that is asked, or when another part fails."""
    end_at: float | None = None
    try:
        while (ended := processes.poll()) is None:
            obey(meeting.told, processes)
            if meeting.has_failed and isinstance(processes, Ranks):
                end_at = end_at or time.monotonic() + OTHERS_S
                if time.monotonic() > end_at:
                    processes.follow()
            time.sleep(POLL_S)
    finally:
        end(processes)
    return ended


def _ignore(line: str) -> None:
    """The driving process follows the log itself."""
