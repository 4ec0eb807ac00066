"""Runs a job's part on a node: an actor of Ray around processes that are started as on a local machine."""

import io
import os
import sys
import tarfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import ray

from dpprof.drive.launch.child import Child
from dpprof.drive.launch.job import MEASURE, Exit, Job
from dpprof.drive.launch.ranks import Place, Ranks, all_here, free_port, interface_of
from dpprof.record.folder import RunFolder

_THREADS = "OMP_NUM_THREADS"


class Part:
    """Part of a job in a temporary folder, polled and ended by the driving process as any job is.

    It has `count` ranks from `first` on (0: no rank), and a worker process of its own. `theirs` are the
    sender's `own_words`, to be replaced by this machine's.
    """

    def __init__(self, job: Job, first: int, count: int, theirs: Sequence[str]) -> None:
        self._job, self._first, self._count, self._theirs = job, first, count, theirs
        self._lines: list[str] = []

    def meet(self) -> tuple[str, int]:
        """Choose an address and port on this node where the ranks of all nodes meet."""
        address = ray.util.get_node_ip_address()
        return address, free_port(address)

    def start(
        self, files: bytes, sources: bytes | None, meeting: tuple[str, int] | None
    ) -> tuple[str, str, int]:
        """Start the processes; `meeting` is for ranks on several nodes.

        Returns the node's id and address, and the niceness of the processes.
        """
        self._room = TemporaryDirectory(prefix="dpprof-on-ray-")
        try:
            self._folder = Path(self._room.name, self._job.folder.name)
            self._folder.mkdir()
            unpack(files, self._folder)
            _set_environment(self._job, sources, Path(self._room.name, "sources"))
            self._processes = self._start(meeting)
        except BaseException:
            self._room.cleanup()
            raise
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), os.nice(0)

    def _start(self, meeting: tuple[str, int] | None) -> Child | Ranks:
        here = dict(zip(self._theirs, own_words(self._folder), strict=True))
        job = replace(
            self._job,
            folder=RunFolder(self._folder),
            command=[here.get(word, word) for word in self._job.command],
            log=self._folder / self._job.log.relative_to(self._job.folder.path),
        )
        if not self._count:
            return Child(job, self._lines.append)
        place = all_here(self._count)
        if meeting is not None:
            interface = interface_of(ray.util.get_node_ip_address())
            place = Place(self._first, self._count, job.num_ranks, *meeting, interface)
        return Ranks(job, self._lines.append, place)

    def poll(self) -> tuple[list[str], Exit | None, bytes]:
        """Return new log lines, and at the end how it ended with its files; then nothing is left of it."""
        ended = self._processes.poll()
        lines, files = self._lines.copy(), b""
        self._lines.clear()
        if ended is not None:
            ranks = range(self._first, self._first + self._count)
            files = pack(self._folder, [f"ranks/{rank}" for rank in ranks] if self._first else ["."])
            self._room.cleanup()
        return lines, ended, files

    def cancel(self, *, followed: bool) -> None:
        """Ask the processes to end, perhaps because a rank elsewhere has failed."""
        self._processes.cancel(followed=followed)


def own_words(folder: Path) -> tuple[str, str, str]:
    """Return the words of a job's command that differ between machines."""
    return sys.executable, MEASURE, str(folder)


def pack(folder: Path, parts: Iterable[str] = (".",)) -> bytes:
    """Pack the folders and regular files of some parts of a folder as a compressed tar file."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return member if member.isfile() or member.isdir() else None

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


def _set_environment(job: Job, sources: bytes | None, modules: Path) -> None:
    """Set what the job's processes inherit."""
    if _THREADS not in psutil.Process().environ():
        # Ray sets it to the task's CPUs, perhaps one. Without it torch decides as it would without Ray.
        os.environ.pop(_THREADS, None)
    with suppress(OSError):  # only root may
        # Ray's workers have a low priority, which their child processes would inherit.
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    if not job.num_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if sources is not None:
        unpack(sources, modules)
        paths = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(modules), paths]))
    # The folder where Ray was started may hold another dpprof, or another version of the workload.
    os.environ["PYTHONSAFEPATH"] = "1"
