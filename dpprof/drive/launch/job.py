"""A job: a command that works on a run folder. And how it ended."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from dpprof.config.experiment import ExperimentConfig
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.parallel import NONE


@dataclass(frozen=True)
class Job:
    """A command to run for a run folder, its output kept in `log`, for `timeout_s` seconds at most.

    The command names Python and the folder as they are on this machine. A launcher that runs it on another
    one puts in that machine's own, and brings the folder back.

    `workload` is what its processes train, as the user named it. A job that only `estimates` may begin as a
    copy of a process that has imported all it needs, as neither its time nor its memory is a figure.

    `num_ranks` is how many processes run the command together, each told its rank by the variables that
    `torchrun` sets, and each with a log of its own (`RunFolder.rank`); 0 for one process that is no rank.
    `num_gpus` is how many GPUs they need. `is_measured` tells that others on the same processors or GPUs
    would spoil its figures.
    """

    folder: RunFolder
    command: list[str]
    log: Path
    timeout_s: float
    workload: str = ""
    estimates: bool = False
    num_ranks: int = 0
    num_gpus: int = 0
    is_measured: bool = True

    def of_rank(self, rank: int) -> "Job":
        """The part of one rank: the command, and that rank's log."""
        return dataclasses.replace(self, log=self.log if rank == 0 else self.folder.rank(rank).log)


@dataclass(frozen=True)
class Exit:
    """How a job ended.

    `code` is the exit code, or minus the signal. `oom_killed` tells that the kernel ran out of memory
    meanwhile and killed something; `peak_rss` is the last figure seen, in bytes. `followed` tells that a rank
    was ended because another one had failed. `ranks` says how each rank ended, in order, if the job had any;
    the rest is then rank 0's, or true of any rank.

    `said` is what a launcher says of an end that the processes did not come to by themselves, as of a machine
    that was lost. `environment` is what it knows of where they ran, for the record.
    """

    code: int
    timed_out: bool = False
    interrupted: bool = False
    oom_killed: bool = False
    peak_rss: int | None = None
    followed: bool = False
    ranks: tuple["Exit", ...] = ()
    said: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_ranks(cls, ranks: "Sequence[Exit]") -> Self:
        """How the ranks of a job ended, together."""
        first = ranks[0]
        failed = next((rank.code for rank in ranks if rank.code and not rank.followed), first.code)
        return cls(
            code=first.code or failed,
            timed_out=any(rank.timed_out for rank in ranks),
            interrupted=any(rank.interrupted for rank in ranks),
            oom_killed=any(rank.oom_killed for rank in ranks),
            peak_rss=first.peak_rss,
            ranks=tuple(ranks),
        )


def measuring_command(folder: RunFolder, *, counted_step: bool = False) -> list[str]:
    """The command line of the measuring process; with `counted_step` it does the one step that a profiler
    around it counts.
    """
    options = ["--counted-step"] if counted_step else []
    return [sys.executable, "-m", "dpprof.measure", *options, str(folder.path)]


def check_command(folder: Path) -> list[str]:
    """The command line that checks the workload that a folder asks about."""
    return [sys.executable, "-m", "dpprof.measure", "--check", str(folder)]


def measuring_job(config: ExperimentConfig, folder: RunFolder, timeout_s: float) -> Job:
    """The job that does a run folder's experiment."""
    job = Job(folder, measuring_command(folder), folder.log, timeout_s, config.workload)
    if config.is_estimate:
        return dataclasses.replace(job, estimates=True, is_measured=False)
    num_ranks = 0 if config.parallel == NONE else config.world_size
    num_gpus = config.world_size if config.device == "cuda" else 0
    return dataclasses.replace(job, num_ranks=num_ranks, num_gpus=num_gpus)
