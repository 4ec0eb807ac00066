"""Stands in for Slurm's programs: jobs run on this machine, their tasks as if each had a node of its own.

`sbatch`, `srun`, `sacct` and `scancel` are copies of this file. $STAND_IN_SLURM is the folder of the queue:
it has each job's batch file, its process id once it runs, and its state if somebody has set it. While `held`
lies there jobs wait, and while `silent` does nothing is told of them.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

QUEUE = Path(os.environ["STAND_IN_SLURM"])


def sbatch(batch_file: str) -> None:
    """Queue a job, or start it."""
    job, text = str(os.getpid()), Path(batch_file).read_text()
    if wrong := re.search(r"^#SBATCH --[\w-]+=(?:True|False)$", text, re.MULTILINE):
        sys.exit(f"sbatch: error: invalid option: {wrong[0]}")
    (QUEUE / f"{job}.sh").write_text(text)
    if not (QUEUE / "held").exists():
        found = re.search(r"^#SBATCH --nodes=(\d+)$", text, re.MULTILINE)
        num_nodes = found[1] if found else "1"
        environment = {"SLURM_JOB_ID": job, "SLURM_JOB_NUM_NODES": num_nodes, "SLURM_NTASKS": num_nodes}
        started = subprocess.Popen(
            ["bash", batch_file],
            env=os.environ | environment,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        (QUEUE / f"{job}.pid").write_text(str(started.pid))
    print(f"Submitted batch job {job}")


def srun(*words: str) -> None:
    """Run a task on each node."""
    output, error = (words[words.index(name) + 1] for name in ("--output", "--error"))
    command = words[words.index("--error") + 2 :]
    tasks = []
    for node in range(int(os.environ["SLURM_JOB_NUM_NODES"])):
        places = [
            p.replace("%j", os.environ["SLURM_JOB_ID"]).replace("%t", str(node)) for p in (output, error)
        ]
        environment = {"SLURM_PROCID": str(node), "SLURM_NODEID": str(node), "SLURM_LOCALID": "0"}
        with open(places[0], "a") as out, open(places[1], "a") as err:
            tasks.append(subprocess.Popen(command, env=os.environ | environment, stdout=out, stderr=err))
    sys.exit(max(task.wait() for task in tasks))


def sacct(*words: str) -> None:
    """How the jobs are."""
    print("JobID|State|NodeList")
    if (QUEUE / "silent").exists():
        return
    for job in (word for before, word in pairwise(words) if before == "-j"):
        print(f"{job}|{_state(job)}|here")


def _state(job: str) -> str:
    said, pid = QUEUE / f"{job}.state", QUEUE / f"{job}.pid"
    if said.exists():
        return said.read_text()
    if not pid.exists():
        return "PENDING"
    with suppress(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
        return "RUNNING"
    return "COMPLETED"


def scancel(job: str) -> None:
    """End a job, or take it from the queue."""
    (QUEUE / f"{job}.state").write_text("CANCELLED")
    with suppress(FileNotFoundError, ProcessLookupError):
        os.killpg(int((QUEUE / f"{job}.pid").read_text()), signal.SIGKILL)


PROGRAMS: dict[str, Callable[..., None]] = {
    "sbatch": sbatch,
    "srun": srun,
    "sacct": sacct,
    "scancel": scancel,
}
if __name__ == "__main__":
    PROGRAMS[Path(sys.argv[0]).name](*sys.argv[1:])
