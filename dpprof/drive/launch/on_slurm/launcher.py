"""Submits every job to Slurm, through submitit."""

import math
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, UncompletedJobError

import dpprof
from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.job_log import FollowedLog
from dpprof.drive.launch.launcher import Handle, NodesElsewhere
from dpprof.drive.launch.on_slurm.on_node import BEGUN, CANCELLED, Meeting, Work
from dpprof.drive.launch.ranks import spread
from dpprof.errors import ConfigError
from dpprof.vocabulary.launchers import LOCAL_SLURM, SlurmOptions
from dpprof.vocabulary.settings import assignments

# Extra time of a job to start and to end in order.
_MORE_MIN = 5
# How often Slurm is asked, and how long a job may take to end before Slurm ends it.
_ASKING_S, _ENDING_S = 1.0, 30.0
# How long a finished job's answer may take to appear here, on a slow file system.
_ANSWER_S = 15.0
_NO_MEMORY = "OUT_OF_MEMORY"
# submitit waits for such a job, expecting it to be requeued.
_PREEMPTED = "PREEMPTED"


class SlurmLauncher:
    """Runs jobs through Slurm's queue. Raises ConfigError where there is none."""

    can_end_jobs = True

    def __init__(self, options: SlurmOptions) -> None:
        self._options = options
        self._more = assignments("slurm_options", options.slurm_options)
        # Nobody knows what a node has before it is allocated, but the user.
        self.machine = NodesElsewhere(
            lambda: options.slurm_gpus_per_node > 0,
            "hardware counters are not taken through Slurm: use --launcher local on a node of your own",
        )
        self.scratch: Path | None = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            self._executor(Path(folder))

    def slots_for(self, job: Job) -> int:
        """Return how many jobs may be in the queue; on a local cluster 1 measured or 2 others."""
        if self._options.slurm_cluster == LOCAL_SLURM:
            return 1 if job.is_measured else 2
        return self._options.slurm_jobs

    def submit(self, job: Job, on_line: Callable[[str], None]) -> Handle:
        """Submit the job to the queue."""
        folder = job.folder.path.absolute()
        meeting = Meeting(
            Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".slurm", dir=folder.parent))
        )
        counts = self._counts(job)
        executor = self._executor(meeting.path)
        executor.update_parameters(**self._parameters(job, counts))
        job.log.unlink(missing_ok=True)
        return SlurmHandle(job, on_line, executor.submit(Work(job, counts, meeting.path).do), meeting)

    def _executor(self, folder: Path) -> Any:
        # Finds this dpprof, whatever has that name in the working directory.
        places = [str(Path(dpprof.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(filter(None, places))
        python = shlex.join(["env", f"PYTHONPATH={path}", sys.executable, "-P"])
        try:
            return submitit.AutoExecutor(
                folder, cluster=self._options.slurm_cluster, slurm_python=python, local_python=python
            )
        except RuntimeError as error:
            raise ConfigError(f"launcher: slurm cannot be used: {error}") from error

    def _counts(self, job: Job) -> tuple[int, ...]:
        options = self._options
        most = options.slurm_ranks_per_node or (options.slurm_gpus_per_node if job.num_gpus else 0)
        num_nodes = math.ceil(job.num_ranks / most) if most and job.num_ranks else 1
        return spread(job.num_ranks, num_nodes)

    def _parameters(self, job: Job, counts: tuple[int, ...]) -> dict[str, Any]:
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
        # A requeued job would find the files of its first run.
        more = {"exclusive": job.is_measured and not job.num_gpus, "no_requeue": True} | self._more
        # sbatch has no `--name=False`.
        flags = {name: value for name, value in more.items() if value is not False}
        if self._options.slurm_partition:
            found["slurm_partition"] = self._options.slurm_partition
        return found | {"slurm_additional_parameters": flags}


class SlurmHandle:
    """Submitted job: `submitted` is submitit's, with one task per part."""

    def __init__(self, job: Job, on_line: Callable[[str], None], submitted: Any, meeting: Meeting) -> None:
        self._job, self._on_line, self._submitted, self._meeting = job, on_line, submitted, meeting
        self._log: FollowedLog | None = None
        self._ask_at = 0.0
        # Set once it is cancelled.
        self._kill_at: float | None = None
        self._lost_at: float | None = None
        self._exit: Exit | None = None

    def poll(self) -> Exit | None:
        """Return how the job ended, if it did."""
        if self._exit is not None:
            return self._exit
        self._read_log()
        now = time.monotonic()
        if self._kill_at is not None and now > self._kill_at:
            self._kill()
        if now > self._ask_at:
            self._ask_at = now + _ASKING_S
            # submitit asks Slurm ever more seldom: a job that was killed is not waited for so long.
            if self._submitted.done() or self._has_no_answer(now) or self._submitted.state == _PREEMPTED:
                self._conclude(now)
        return self._exit

    def cancel(self) -> None:
        """Ask the job to end; a waiting one leaves the queue."""
        if self._exit is not None or self._kill_at is not None:
            return
        with suppress(OSError):  # the folder is gone or full: Slurm ends the job
            self._meeting.say(CANCELLED)
        self._kill_at = time.monotonic() + _ENDING_S
        self._ask_at = 0.0
        if not self._meeting.heard(BEGUN):
            self._kill()

    def _kill(self) -> None:
        """Have Slurm cancel it. If it has begun, wait for its own account of its end."""
        self._kill_at = float("inf")
        self._submitted.cancel(check=False)
        self._lost_at = time.monotonic() + _ANSWER_S
        if not self._meeting.heard(BEGUN):
            self._finish(Exit(-signal.SIGTERM, interrupted=True))

    def _has_no_answer(self, now: float) -> bool:
        return self._lost_at is not None and now > self._lost_at

    def _conclude(self, now: float) -> None:
        tasks = [self._submitted.task(number) for number in range(self._submitted.num_tasks)]
        if not all(task.paths.result_pickle.exists() for task in tasks):
            self._lost_at = self._lost_at or now + _ANSWER_S
            if self._has_no_answer(now) or self._kill_at is not None:
                self._finish(self._lost())
            return
        try:
            self._finish(_together([task.result() for task in tasks]))
        except (FailedJobError, UncompletedJobError) as error:
            # submitit puts a trace between lines of dashes.
            parts = re.split(r"^-{5,}$", str(error), flags=re.MULTILINE)
            why = _last_line(parts[1] if len(parts) > 1 else parts[0])
            self._finish(Exit(1, said=f"Slurm could not run it: {why}"))

    def _lost(self) -> Exit:
        """Describe the end of a job that left no answer."""
        state = str(self._submitted.state)
        why = _last_line(self._submitted.task(0).stderr() or "")
        return Exit(
            -signal.SIGKILL,
            interrupted=self._kill_at is not None,
            oom_killed=state == _NO_MEMORY,
            said=f"Slurm ended job {self._submitted.job_id} ({state})" + (f": {why}" if why else ""),
        )

    def _finish(self, ended: Exit) -> None:
        if self._kill_at is not None and not ended.interrupted:  # Slurm's own signal came first
            ended = replace(ended, interrupted=True)
        self._exit = ended
        shutil.rmtree(self._meeting.path, ignore_errors=True)
        self._read_log()
        if self._log is not None:
            lines, log = self._log.last_lines(), self._log
            self._log = None
            log.close()
            self._pass_on(lines)

    def _read_log(self) -> None:
        if self._log is None:
            with suppress(OSError):
                self._log = FollowedLog(os.open(self._job.log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        if self._log is not None:
            self._pass_on(self._log.new_lines())

    def _pass_on(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._on_line(line)


def _together(exits: Sequence[Exit]) -> Exit:
    if len(exits) == 1:
        return exits[0]
    environment = dict(exits[0].environment)
    environment["node"] = ", ".join(dict.fromkeys(one.environment["node"] for one in exits))
    return replace(Exit.of_ranks([rank for one in exits for rank in one.ranks]), environment=environment)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
