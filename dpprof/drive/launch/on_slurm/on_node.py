"""Runs a job's part on a node, as a task of a Slurm job. The parts share a folder, `Meeting`."""

import signal
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path

from submitit import JobEnvironment

from dpprof.drive.launch.child import Child
from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.ranks import LOOPBACK, OTHERS_S, HostRanks, Ranks, all_here, free_port, interface_of
from dpprof.record.files import write_text

# How long the first part may take to announce where ranks meet.
_MEETING_S = 600.0
# How often messages and processes are looked at.
_POLL_S = 0.25


# What is said at a meeting: the job has left the queue, it is to end, a rank has failed.
BEGUN, CANCELLED, FAILED = "begun", "cancelled", "failed"


class Meeting:
    """Folder where parts of a job and the driving process leave messages for each other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._chosen = path / "meeting"

    def say(self, word: str) -> None:
        """Leave a message."""
        self.path.joinpath(word).touch()

    def heard(self, word: str) -> bool:
        """Tell whether a message was left."""
        return self.path.joinpath(word).exists()

    def choose(self, address: str, port: int) -> None:
        """Announce where ranks meet."""
        write_text(self._chosen, f"{address} {port}")

    def chosen(self) -> tuple[str, int] | None:
        """Wait for the meeting point of the ranks; None if the job is to end first. Raises TimeoutError."""
        deadline = time.monotonic() + _MEETING_S
        while not self._chosen.exists():
            if self.heard(FAILED) or self.heard(CANCELLED):
                return None
            if time.monotonic() > deadline:
                raise TimeoutError(f"the first node said nothing for {_MEETING_S:g} s")
            time.sleep(_POLL_S)
        address, _, port = self._chosen.read_text().partition(" ")
        return address, int(port)


@dataclass(frozen=True)
class Work:
    """Job with the number of ranks of each part (0: one process that is no rank)."""

    job: Job
    counts: tuple[int, ...]
    meeting: Path

    def do(self) -> Exit:
        """Run this task's part. Returns how its processes ended, and where."""
        environment, meeting = JobEnvironment(), Meeting(self.meeting)
        try:
            meeting.say(BEGUN)
            processes = self._start(environment, meeting)
            if processes is None:
                followed = meeting.heard(FAILED)
                one = Exit(-signal.SIGTERM, followed=followed, interrupted=not followed)
                ended = Exit.of_ranks([one] * self.counts[environment.global_rank])
            else:
                ended = _end_of(processes, meeting)
        except BaseException:
            meeting.say(FAILED)  # the others would wait for this part
            raise
        if ended.code:
            meeting.say(FAILED)
        return replace(ended, environment={"node": socket.gethostname(), "slurm_job": environment.job_id})

    def _start(self, environment: JobEnvironment, meeting: Meeting) -> Child | Ranks | None:
        """Start the part's processes; None if the job is to end first."""
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
        return Ranks(self.job, _ignore, HostRanks(first, count, self.job.num_ranks, *chosen, interface))


def _end_of(processes: Child | Ranks, meeting: Meeting) -> Exit:
    """Wait for a part's processes; end them on order, or when another part fails."""
    end_at: float | None = None
    try:
        while (ended := processes.poll()) is None:
            if meeting.heard(CANCELLED):
                processes.cancel()
            if meeting.heard(FAILED) and isinstance(processes, Ranks):
                end_at = end_at or time.monotonic() + OTHERS_S
                if time.monotonic() > end_at:
                    processes.follow()
            time.sleep(_POLL_S)
    finally:
        processes.cancel()
        while processes.poll() is None:
            time.sleep(_POLL_S)
    return ended


def _ignore(line: str) -> None:
    """Do nothing: the driving process follows the log."""
