"""Submits every job to Slurm, through submitit."""

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import submitit

from dpprof.drive.launch.job import Job
from dpprof.drive.launch.job_log import remove
from dpprof.drive.launch.launcher import Handle, Ncu
from dpprof.drive.launch.on_slurm.handle import SlurmHandle
from dpprof.drive.launch.on_slurm.on_node import Meeting, Work, run
from dpprof.errors import ConfigError, CountersUnavailable
from dpprof.settings import assignments
from dpprof.vocabulary.cluster_options import LOCAL_SLURM, SlurmOptions

# What a job may take beside its own time: to begin, and to end in order.
_MORE_MIN = 5


class SlurmLauncher:
    """Slurm's queue. Raises ConfigError where there is none."""

    can_end_jobs = True

    def __init__(self, options: SlurmOptions) -> None:
        self._options = options
        self._more = assignments("slurm_options", options.slurm_options)
        self.machine = SlurmNodes(options.slurm_gpus_per_node)
        self.scratch: Path | None = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            self._executor(Path(folder))

    def slots_for(self, job: Job) -> int:
        """As many as may be in the queue; on this machine one that measures."""
        if self._options.slurm_cluster == LOCAL_SLURM:
            return 1 if job.is_measured else 2
        return self._options.slurm_jobs

    def submit(self, job: Job, on_line: Callable[[str], None]) -> Handle:
        """Put the job into the queue."""
        folder = job.folder.path.absolute()
        meeting = Meeting(
            Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".slurm", dir=folder.parent))
        )
        counts = self._counts(job)
        executor = self._executor(meeting.path)
        executor.update_parameters(**self._parameters(job, counts))
        remove(job.log)
        return SlurmHandle(job, on_line, executor.submit(run, Work(job, counts, meeting.path)), meeting)

    def _executor(self, folder: Path) -> Any:
        try:
            return submitit.AutoExecutor(folder, cluster=self._options.slurm_cluster)
        except RuntimeError as error:
            raise ConfigError(f"launcher: slurm cannot be used: {error}") from error

    def _counts(self, job: Job) -> tuple[int, ...]:
        """The ranks of each node, as even as possible."""
        options = self._options
        most = options.slurm_ranks_per_node or (options.slurm_gpus_per_node if job.num_gpus else 0)
        num_nodes = math.ceil(job.num_ranks / most) if most and job.num_ranks else 1
        return tuple(len(range(place, job.num_ranks, num_nodes)) for place in range(num_nodes))

    def _parameters(self, job: Job, counts: tuple[int, ...]) -> dict[str, Any]:
        """What submitit is told."""
        if self._options.slurm_cluster == LOCAL_SLURM:  # it knows one node: its tasks stand in for others
            shape = {"nodes": 1, "tasks_per_node": len(counts)}
        else:
            shape = {"nodes": len(counts), "tasks_per_node": 1}
        found: dict[str, Any] = {
            "name": "dpprof",
            "timeout_min": math.ceil(job.timeout_s / 60) + _MORE_MIN,
            **shape,
        }
        if job.num_gpus:
            found["gpus_per_node"] = max(counts) or job.num_gpus
        # A job that Slurm began anew would find the files of its first run.
        more = {"exclusive": job.is_measured and not job.num_gpus, "no_requeue": True} | self._more
        # sbatch has no `--name=False`.
        flags = {name: value for name, value in more.items() if value is not False}
        if self._options.slurm_partition:
            found["slurm_partition"] = self._options.slurm_partition
        return found | {"slurm_additional_parameters": flags}


class SlurmNodes:
    """The nodes, which nobody knows before they are given."""

    def __init__(self, num_gpus: int) -> None:
        self._num_gpus = num_gpus

    def cuda_available(self) -> bool:
        """Whether the user says that nodes have GPUs."""
        return self._num_gpus > 0

    def busy_pct(self) -> float:
        """0, as far as can be told: each run says itself whether it was disturbed."""
        return 0.0

    def ncu(self, device: str) -> Ncu:
        """Raises CountersUnavailable: nobody knows what a node has before it is given."""
        raise CountersUnavailable(
            "hardware counters are not taken through Slurm: use --launcher local on a node of your own"
        )
