"""Runs a job's part on a node: a Ray task around processes that are started as on a local machine.

The task watches a file for orders, since Ray would drop the last `News` of a cancelled one.
"""

import io
import os
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import ray

from dpprof.drive.launch.child import Child
from dpprof.drive.launch.job import MEASURE, Exit, Job
from dpprof.drive.launch.ranks import HostRanks, Ranks, all_here, free_port, interface_of
from dpprof.record.folder import RunFolder
from dpprof.record.lock import LOCK

_THREADS = "OMP_NUM_THREADS"
CANCEL, FOLLOW = "cancel", "follow"
_POLL_S = 0.25


@dataclass(frozen=True)
class Where:
    """A node, its address, and the file there that passes orders to a task."""

    node_id: str
    address: str
    orders: Path
    niceness: int


@dataclass(frozen=True)
class News:
    """New log lines; in the first news `where` it runs, in the last how it ended and the files."""

    lines: list[str]
    where: Where | None = None
    exit: Exit | None = None
    files: bytes = b""


@dataclass(frozen=True)
class Work:
    """Ranks of a job: `count` from `first` on (0: no rank). `python` and `measure` are the sender's paths."""

    job: Job
    first: int
    count: int
    python: str = sys.executable
    measure: str = MEASURE

    def start(self, folder: Path, meeting: tuple[str, int] | None, lines: list[str]) -> Child | Ranks:
        """Start the processes in a folder of this machine, with this machine's Python and dpprof."""
        here = {self.python: sys.executable, self.measure: MEASURE, str(self.job.folder.path): str(folder)}
        command = [here.get(word, word) for word in self.job.command]
        log = folder / self.job.log.relative_to(self.job.folder.path)
        job = replace(self.job, folder=RunFolder(folder), command=command, log=log)
        if not self.count:
            return Child(job, lines.append)
        if meeting is None:
            return Ranks(job, lines.append, all_here(self.count))
        interface = interface_of(ray.util.get_node_ip_address())
        return Ranks(job, lines.append, HostRanks(self.first, self.count, job.num_ranks, *meeting, interface))


def choose_meeting() -> tuple[str, int]:
    """Choose an address and port on this node where the ranks of all nodes meet."""
    address = ray.util.get_node_ip_address()
    return address, free_port(address)


def write_order(order: str, orders: Path) -> None:
    """Tell a task on this node to end: CANCEL, or FOLLOW if ranks elsewhere have failed."""
    with suppress(OSError):  # it has ended, and the folder has gone
        orders.write_text(order)


def run_part(
    work: Work, files: bytes, sources: bytes | None, meeting: tuple[str, int] | None
) -> Iterator[News]:
    """Run a job's part in a temporary folder. `meeting` is the address and port of ranks on several nodes."""
    with TemporaryDirectory(prefix="dpprof-on-ray-") as path, _environment(work.job, sources, path):
        folder, orders = Path(path, work.job.folder.name), Path(path, "orders")
        folder.mkdir()
        unpack(files, folder)
        address, node_id = ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()
        lines: list[str] = []
        yield News(lines, Where(node_id, address, orders, os.nice(0)))
        processes = work.start(folder, meeting, lines)
        try:
            while (ended := processes.poll()) is None:
                if lines:
                    yield News(lines.copy())
                    lines.clear()
                order = orders.read_text() if orders.exists() else ""
                if order == CANCEL:
                    processes.cancel()
                elif order == FOLLOW:
                    processes.follow()
                time.sleep(_POLL_S)
        finally:
            processes.cancel()
            while processes.poll() is None:
                time.sleep(_POLL_S)
        ranks = range(work.first, work.first + work.count)
        left = pack(folder, [f"ranks/{rank}" for rank in ranks] if work.first else ["."])
    yield News(lines, exit=ended, files=left)


def pack(folder: Path, parts: Iterable[str] = (".",)) -> bytes:
    """Pack the folders and regular files of some parts of a folder as a compressed tar file.

    Its lock stays: it is one of the driving process's machine.
    """

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        is_lock = Path(member.name).name == LOCK
        return member if (member.isfile() and not is_lock) or member.isdir() else None

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for part in parts:
            if (folder / part).is_dir():
                archive.add(folder / part, part, filter=plain)
    return stream.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Extract files into a folder, replacing those of the same names."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and later
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)


@contextmanager
def _environment(job: Job, sources: bytes | None, room: str) -> Iterator[None]:
    """Set what the job's processes inherit, and restore it: this worker may run another job later."""
    before = dict(os.environ)
    if _THREADS not in psutil.Process().environ():
        # Ray sets it to the task's CPUs, perhaps one. Without it torch decides as it would without Ray.
        os.environ.pop(_THREADS, None)
    with suppress(OSError):  # only root may
        # Ray's workers have a low priority, which their child processes would inherit.
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    if not job.num_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if sources is not None:
        modules = Path(room, "sources")
        unpack(sources, modules)
        paths = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(modules), paths]))
    # The folder where Ray was started may hold another dpprof, or another version of the workload.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
