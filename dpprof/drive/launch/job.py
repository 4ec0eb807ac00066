"""A job, which is a command for a run folder, and how it ended."""

import dataclasses
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import dpprof
from dpprof.config.experiment import ExperimentConfig
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.parallel import NONE

# This dpprof's measuring process. `-m dpprof.measure` would also find that name in the working directory,
# which `-P` excludes.
MEASURE = str(Path(dpprof.__file__).parent / "measure" / "__main__.py")
COUNTED_STEP, CHECK, CALIBRATE = "--counted-step", "--check", "--calibrate"


@dataclass(frozen=True)
class Job:
    """Command to run for a run folder, with its output in `log`, for at most `timeout_s` seconds.

    It has this machine's paths of Python, dpprof (`MEASURE`) and the folder; a launcher that runs it
    elsewhere replaces them, and brings the folder back. `workload` is as the user named it. A job that
    `may_fork` may begin as a fork of a process with all imports done: not a measured one, whose steps take
    5 to 10 % longer in a fork.

    `num_ranks` processes run it, each with `torchrun`'s variables and its own log (`RunFolder.rank`); 0 means
    one process that is no rank. `num_gpus` is for all. If `is_measured`, jobs on the same processors or GPUs
    would spoil its figures. If `another_follows`, a measured job will be submitted after its end.
    """

    folder: RunFolder
    command: list[str]
    log: Path
    timeout_s: float
    workload: str = ""
    may_fork: bool = False
    num_ranks: int = 0
    num_gpus: int = 0
    is_measured: bool = True
    another_follows: bool = False

    def of_rank(self, rank: int) -> "Job":
        """The part of one rank: the same command with that rank's log."""
        return dataclasses.replace(self, log=self.log if rank == 0 else self.folder.rank(rank).log)


@dataclass(frozen=True)
class Exit:
    """End of a job. `code` is the exit code, or minus the signal.

    `oom_killed` means that the kernel killed something for lack of memory meanwhile; `peak_rss` is in bytes,
    as last seen; `followed` means ended because another rank had failed. `ranks` are the ends of all ranks in
    order; the other fields are then rank 0's, or true of any rank. `said` is a launcher's explanation, such
    as a lost machine; `environment` describes where it ran, for the record.
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

    @property
    def how(self) -> str:
        """Description of an end before the process was done."""
        if self.code >= 0:
            early = f"exit code {self.code} before it was done"
            return f"the process ended with {early}, as os._exit({self.code}) does"
        try:
            name = signal.Signals(-self.code).name
        except ValueError:  # most real-time signals have no name
            name = f"signal {-self.code}"
        return f"the process was ended by {name}"

    @classmethod
    def of_ranks(cls, ranks: "Sequence[Exit]") -> Self:
        """Combine the ends of a job's ranks."""
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


def measuring_command(folder: Path, *options: str) -> list[str]:
    """Return the measuring process's command line; options: COUNTED_STEP for ncu, CHECK, CALIBRATE."""
    return [sys.executable, "-P", MEASURE, *options, str(folder)]


def measuring_job(config: ExperimentConfig, folder: RunFolder, timeout_s: float) -> Job:
    """Return the job that runs a folder's experiment."""
    job = Job(folder, measuring_command(folder.path), folder.log, timeout_s, config.workload)
    if config.is_estimate:
        return dataclasses.replace(job, may_fork=True, is_measured=False)
    num_ranks = 0 if config.parallel == NONE else config.world_size
    num_gpus = config.world_size if config.device == "cuda" else 0
    return dataclasses.replace(job, num_ranks=num_ranks, num_gpus=num_gpus)
