"""A job's part as it runs on a node: a Ray task around the processes that a local launcher starts.

The task yields messages: where it runs, where ranks meet, the lines of the logs, and at last how the
processes ended and what they left. Ray does not cancel it, as it would take nothing more from it then: the
task looks for a file that says what is asked.
"""

import contextlib
import fcntl
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import ray

from dpprof.drive.launch.child import Child
from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.on_ray.folders import pack, unpack
from dpprof.drive.launch.orders import POLL_S, end, obey
from dpprof.drive.launch.ranks import Place, Ranks, all_here, free_port, interface_of
from dpprof.record.folder import RunFolder

_PREFIX = "dpprof-on-ray-"
_THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Began:
    """The task runs: on which node, at which address. `told` is the file that says what is asked of it."""

    node_id: str
    address: str
    host: str
    told: Path
    niceness: int


@dataclass(frozen=True)
class Meeting:
    """Where the ranks of all nodes meet: the first node has chosen."""

    address: str
    port: int


@dataclass(frozen=True)
class Lines:
    """What was written into the logs."""

    lines: list[str]


@dataclass(frozen=True)
class Ended:
    """How the processes ended, and the files that they left."""

    exit: Exit
    files: bytes


@dataclass(frozen=True)
class Work:
    """A job's part. `python` is the interpreter of the machine that sends it, as the command names it.

    It has the ranks from `first` on, `count` of them, or a process that is no rank. They meet the others at
    `meeting`; without one the first part says where, if there are others.
    """

    job: Job
    python: str
    first: int
    count: int
    meeting: Meeting | None = None

    @property
    def is_spread(self) -> bool:
        """Whether it has some of the ranks alone."""
        return self.count < self.job.num_ranks

    def in_folder(self, folder: Path) -> Job:
        """The job in a folder of this machine, with this machine's Python."""
        job, there = self.job, str(self.job.folder.path)
        here = {self.python: sys.executable, there: str(folder)}
        command = [here.get(word, word) for word in job.command]
        log = folder / job.log.relative_to(job.folder.path)
        return replace(job, folder=RunFolder(folder), command=command, log=log)


Message = Began | Meeting | Lines | Ended


def do(work: Work, files: bytes, sources: bytes | None) -> Iterator[Message]:
    """Run a job's part in a folder that holds `files`, with the modules of `sources`."""
    with _room() as room, _environment(work, sources, room / "sources"):
        folder = room / work.job.folder.name
        folder.mkdir()
        unpack(files, folder)
        told = room / "told"
        address = ray.util.get_node_ip_address()
        context = ray.get_runtime_context()
        yield Began(context.get_node_id(), address, socket.gethostname(), told, os.nice(0))
        meeting = work.meeting
        if work.is_spread and meeting is None:
            meeting = Meeting(address, free_port(address))
            yield meeting
        lines: list[str] = []
        processes = _start(work, folder, lines.append, meeting, address)
        try:
            while (ended := processes.poll()) is None:
                if lines:
                    yield Lines(lines.copy())
                    lines.clear()
                obey(told, processes)
                time.sleep(POLL_S)
        finally:
            end(processes)
        yield Lines(lines)
        yield Ended(ended, pack(folder, _parts(work)))


def _start(
    work: Work, folder: Path, on_line: Callable[[str], None], meeting: Meeting | None, address: str
) -> Child | Ranks:
    job = work.in_folder(folder)
    if not work.count:
        return Child(job, on_line)
    if meeting is None:
        return Ranks(job, on_line, all_here(work.count))
    place = Place(work.first, work.count, job.num_ranks, meeting.address, meeting.port, interface_of(address))
    return Ranks(job, on_line, place)


def _parts(work: Work) -> list[str]:
    """What this node's processes have left of the run folder."""
    if not work.first:
        return ["."]
    return [f"ranks/{rank}" for rank in range(work.first, work.first + work.count)]


@contextlib.contextmanager
def _room() -> Iterator[Path]:
    """A folder of this task's own. Those of tasks that were killed are removed: nobody holds their locks."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    with _locked(hidden):
        room = hidden.rename(hidden.with_name(hidden.name.removeprefix(".")))
        try:
            yield room
        finally:
            shutil.rmtree(room, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises OSError if another process has the folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _environment(work: Work, sources: bytes | None, place: Path) -> Iterator[None]:
    """What the job's processes inherit of this one, which may run another job later."""
    before = dict(os.environ)
    if _THREADS not in psutil.Process().environ():
        # Ray has set it to the CPUs of the task, which may be one. torch decides as it would without Ray.
        os.environ.pop(_THREADS, None)
    with contextlib.suppress(OSError):  # only root may
        # Ray's workers run at a low priority, from which what they start would suffer.
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    if not work.job.num_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    paths = os.environ.get("PYTHONPATH", "")
    if sources is not None:
        unpack(sources, place)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(place), paths]))
    # The folder in which Ray was started here may hold another dpprof, or another state of the workload.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
