"""What a launcher adds to an experiment: seconds from submitting a job to its end, beside the local launcher.

    pip install examples/ray_launcher
    python benchmarks/launchers.py > docs/results/launchers.md

Two jobs: a command that does nothing, and a small experiment with the clean pass alone. Each runs with every
launcher in turn: local, Ray on a cluster of this machine, and Slurm with submitit's executor for this
machine, which has no queue. The first round, which starts processes that stay, does not count. Ray's aim is
less than a second. A few minutes; refuses a machine that is busy.
"""

import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import ray

from dpprof import __version__
from dpprof.config.drive import DriveConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.drive.jobs import Stop, run_job
from dpprof.drive.launch.job import Job, measuring_job
from dpprof.drive.launch.launcher import Launcher, make_launcher
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.formats import markdown_table

ROUNDS = 10
BUSY_PCT = 10.0
LOCAL = "local"
LAUNCHERS = {
    LOCAL: DriveConfig(),
    "ray": DriveConfig(launcher="ray", options={"ray_address": "local"}),
    "slurm (no queue)": DriveConfig(launcher="slurm", options={"slurm_cluster": "local"}),
}


def nothing(place: Path) -> Job:
    """A command that does nothing."""
    folder = RunFolder(place)
    folder.path.mkdir(parents=True)
    return Job(folder, [sys.executable, "-c", "pass"], folder.log, 60)


def experiment(place: Path) -> Job:
    """The smallest model, ten steps."""
    config = ExperimentConfig(
        model_size="tiny", batch_size=2, seq_len=16, device="cpu", how=MeasuringConfig(passes="clean")
    ).resolve(cuda_available=False)
    folder = RunFolder(place)
    folder.create(config)
    return measuring_job(config, folder, 600)


def seconds(launcher: Launcher, job: Job) -> float:
    """From submitting a job to its end."""
    began = time.monotonic()
    ended = run_job(launcher, job, lambda line: None, Stop())
    if ended.code:
        sys.exit(f"a job failed: {ended}")
    return time.monotonic() - began


def times(launchers: dict[str, Launcher], make: Callable[[Path], Job], place: Path) -> dict[str, list[float]]:
    """The times of a job by launcher."""
    found: dict[str, list[float]] = {name: [] for name in launchers}
    for number in range(ROUNDS + 1):
        for name, launcher in launchers.items():
            took = seconds(launcher, make(place / f"{name} {number}"))
            if number:
                found[name].append(took)
    return found


def main() -> None:
    """Entry."""
    busy = psutil.cpu_percent(interval=5)
    if busy > BUSY_PCT:
        sys.exit(f"this machine is {busy:.0f} % busy: its times would mean nothing")
    launchers = {name: make_launcher(drive) for name, drive in LAUNCHERS.items()}
    rows = []
    with TemporaryDirectory() as place:
        for what, make in (("a command that does nothing", nothing), ("a small experiment", experiment)):
            found = times(launchers, make, Path(place) / make.__name__)
            local = statistics.median(found[LOCAL])
            for name, took in found.items():
                median = statistics.median(took)
                more = "" if name == LOCAL else f"{median - local:+.2f}"
                rows.append([what, name, f"{median:.2f}", f"{min(took):.2f}", f"{max(took):.2f}", more])
    ray.shutdown()
    print("# What launchers add to an experiment\n")
    versions = f"dpprof {__version__}, Ray {ray.__version__}, Python {platform.python_version()}"
    print(
        f"{versions}, {psutil.cpu_count()} cores. {ROUNDS} jobs each, in turn; seconds from submitting to "
        "the end. The driving process looks four times a second. Made by `python benchmarks/launchers.py`.\n"
    )
    print(markdown_table(["job", "launcher", "median", "least", "most", "more than local"], rows, right=2))


if __name__ == "__main__":
    main()
