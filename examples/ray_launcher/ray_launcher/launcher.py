"""Runs every job as tasks on suitable nodes of a Ray cluster."""

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from threading import Lock

# Keeps Ray's messages about its nodes out of the output; dpprof reports what matters. Ray reads this when it
# is imported.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")

import ray

from dpprof.drive.launch.job import Job
from dpprof.drive.launch.launcher import Handle, NodesElsewhere
from dpprof.errors import ConfigError, DpprofError
from dpprof.vocabulary.workloads import WORKLOADS, listed
from ray_launcher import RayOptions
from ray_launcher.connection import connect, why_lost
from ray_launcher.handle import RayHandle
from ray_launcher.placement import Placer, nodes

# Limit on a workload's files that are sent to the nodes.
_MOST_BYTES = 64 * 2**20


class RayLauncher:
    """Runs jobs on a Ray cluster. Raises ConfigError if it cannot be reached."""

    can_end_jobs = True
    scratch: Path | None = None

    def __init__(self, options: RayOptions) -> None:
        self._options = options
        # Reports must be read on the machine that made them.
        self.machine = NodesElsewhere(
            lambda: any(node.num_gpus for node in nodes()),
            "hardware counters are not read on a Ray cluster: use --launcher local on a node with the GPU",
        )
        self._placer = Placer()
        self._lock = Lock()
        self._sources: dict[str, object] = {}
        connect(options.ray_address)

    def slots_for(self, job: Job) -> int:
        """Return how many GPUs or nodes allow; for jobs that are not measured, one per core."""
        return self._placer.slots_for(job)

    def submit(self, job: Job, on_line: Callable[[str], None]) -> Handle:
        """Submit the job to Ray. Raises DpprofError if its node is lost."""
        if why := why_lost():
            raise DpprofError(why)
        with self._lock:
            if job.workload not in self._sources:
                self._sources[job.workload] = ray.put(sources_of(job.workload))
        return RayHandle(job, on_line, self._placer, self._options.max_retries, self._sources[job.workload])


def sources_of(workload: str) -> bytes | None:
    """Pack the folder of the workload's module, with all Python files below it, as a tar file.

    None unless a local process would find it in the working directory or on PYTHONPATH. ConfigError if too
    large.
    """
    if ":" not in workload or listed(workload) in WORKLOADS:
        return None
    module = workload.partition(":")[0].partition(".")[0]
    places = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    root = next((Path(place) for place in places if PathFinder.find_spec(module, [place])), None)
    if root is None:
        return None
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", dereference=True) as archive:
        for path in _python_files(root):
            archive.add(path, path.relative_to(root))
            if stream.tell() > _MOST_BYTES:
                raise ConfigError(
                    f"workload: the Python files in {root} and below are too many to be sent to the nodes: "
                    "put the workload's module into a folder of its own, or install it there"
                )
    return stream.getvalue()


def _python_files(root: Path) -> Iterator[Path]:
    """Yield importable files: those in folders whose names are identifiers."""
    for place, folders, names in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if name.isidentifier() and name != "__pycache__" and not Path(place, name, "pyvenv.cfg").exists()
        ]
        yield from (path for name in names if (path := Path(place, name)).suffix == ".py" and path.is_file())
