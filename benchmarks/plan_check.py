"""What a plan predicts, and what is measured: the step and the peak of the row that it recommends.

    python benchmarks/plan_check.py > docs/results/plan_cpu.md

Measures one sweep of `small` at batch 2 and 4, plans with each trainer from these times, and measures the
recommended physical batch of each plan with `dpprof profile --plan`. About ten minutes on 2 cores; refuses a
machine that is busy.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import opacus
import psutil
import torch

from dpprof import __version__
from dpprof.pages.run_tables import beside
from dpprof.record.figures.results import read_result
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.formats import markdown_table

TRAINERS = ("flat", "ghost", "fast", "bk", "mixed")
MODEL = ["--device", "cpu", "--seq-len", "128", "--model-size", "small"]
DATA = ["--dataset-size", "20000", "--logical-batches", "64", "--device-memory-gib", "1"]
BUSY_PCT = 10.0


def dpprof(place: Path, *arguments: str) -> None:
    """Run a command of dpprof's in a folder."""
    store = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{place / 'mlflow.db'}"}
    line = [sys.executable, "-m", "dpprof", *arguments]
    ended = subprocess.run(line, cwd=place, env=store, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"{' '.join(arguments)} failed: {ended.stdout}{ended.stderr}")


def newest(place: Path, pattern: str) -> Path:
    """The folder that was made last."""
    return max(place.glob(pattern), key=lambda path: path.stat().st_mtime)


def row(place: Path, trainer: str) -> list[str]:
    """Plan with one trainer, and measure what it recommends."""
    dpprof(place, "plan", *MODEL, *DATA, "--trainers", trainer, "--measured", "base")
    plan = newest(place, "runs/plan-*")
    recommended = json.loads((plan / "plan.json").read_text())["recommended"]
    short = ["--passes", "clean,memory", "--warmup-steps", "1", "--measured-steps", "5"]
    dpprof(place, "profile", "--plan", str(plan), *short)
    result = read_result(RunFolder(newest(place, "runs/profile-*/DP*")))
    assert result.predicted is not None, "it was measured for a plan"
    assert result.record is not None, "it finished"
    first, _, third = statistics.quantiles(result.record.step_s)
    found = {one.name: one for one in beside(result.predicted, result.record)}
    batches = f"{recommended['experiment']['accumulation_steps']} x {recommended['physical_batch']}"
    step, peak = found["step"], found["peak"]
    steps = [step.planned, step.measured, f"{first:.2f} to {third:.2f} s", step.off]
    return [trainer, batches, *steps, peak.planned, peak.measured, peak.off]


def main() -> None:
    """Print the table."""
    busy = psutil.cpu_percent(interval=5)
    if busy > BUSY_PCT:
        sys.exit(f"this machine is {busy:.0f} % busy: its times would mean nothing")
    with TemporaryDirectory() as folder:
        place = Path(folder)
        sizes = ["--device", "cpu", "--model-sizes", "small", "--seq-lens", "128", "--batch-sizes", "2,4"]
        names = ["--trainers", ",".join(TRAINERS), "--passes", "clean", "--sweep-name", "base"]
        dpprof(place, "sweep", *sizes, *names, "--repeats", "2")
        rows = [row(place, trainer) for trainer in TRAINERS]
    print("# Plans and measurements\n")
    print(
        f"dpprof {__version__}, torch {torch.__version__}, Opacus {opacus.__version__}, Python "
        f"{platform.python_version()}, {psutil.cpu_count()} cores. `small` with sequences of 128. Each "
        "trainer was measured twice at batch 2 and 4 in one sweep, 10 steps each time. From the medians a "
        "plan for a logical batch of 64 chose the physical batch and predicted a logical step; the median of "
        "5 was then measured, minutes later. Made by `python benchmarks/plan_check.py`.\n"
    )
    header = ["trainer", "physical batches", "step, plan", "measured", "quartiles", "off"]
    header += ["peak, plan", "measured", "off"]
    print(markdown_table(header, rows, right=1))


if __name__ == "__main__":
    main()
