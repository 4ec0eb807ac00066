"""How long does the tool itself take, and where do the seconds go?

    git worktree add ../before 15fd648
    python benchmarks/own_time.py ../before > docs/results/own_time.md

Without a folder, only this checkout is timed. Takes half an hour with one, on 2 idle cores. Every command
runs by turns in both checkouts, each time in a new folder with a store of its own.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import mlflow
import opacus
import torch
from trainers import versions_of

from dpprof.vocabulary.formats import markdown_table

HERE = Path(__file__).parents[1]
ONE_B = "--model-sizes 1b --trainers ghost --batch-sizes 8 --seq-lens 1024 --target H100"
SEVEN_B = "--model-sizes 7b --trainers ghost --parallel fsdp2 --world-size 64 --target H100 --batch-sizes 1"
PLAN = "plan --target H100 --num-devices 8 --model-size 1b --dataset-size 10000000 --target-epsilon 8"
LARGE = "--workload huggingface:gpt2-large --seq-lens 1024"
# Commands and how often each runs; one that begins with an equal sign runs where the one before it did.
COMMANDS = {
    "--help": 15,
    "profile --device cpu --model-size tiny": 5,
    f"estimate {ONE_B}": 3,
    f"estimate {SEVEN_B}": 1,
    "test --device cpu": 1,
    "sweep --device cpu": 1,
    f"fit --target H100 {LARGE}": 1,
    PLAN: 1,
    f"={PLAN}": 1,
}
STARTUP = "startup"
ONE = "--one"


class Took(NamedTuple):
    """One run of a command: seconds, the largest resident set of its processes, and what these did.

    `within` has the seconds of each measuring process to its first step (`startup`), and of its passes.
    """

    seconds: float
    mib: float
    within: dict[str, list[float]]


def main() -> None:
    if sys.argv[1:2] == [ONE]:  # in a process of its own, for its children's largest resident set
        print(json.dumps(once(sys.argv[2:])))
        return
    checkouts = {"now": HERE}
    if sys.argv[1:]:
        checkouts = {"before": Path(sys.argv[1]).absolute()} | checkouts
    with TemporaryDirectory() as folder:
        taken = dict(timed(checkouts, Path(folder)))
    print("# The tool's own time\n")
    print(f"Made by `python benchmarks/own_time.py`, {versions_of((torch, opacus, mlflow))}.\n")
    print("Seconds from the start of a command to its end, and the largest resident set of its processes:")
    print("medians of so many runs.\n")
    headings = [f"{name}, {unit}" for unit in ("s", "MiB") for name in checkouts]
    print(markdown_table(["command", "runs", *headings], list(totals(taken, checkouts))))
    print("Of these, the seconds of its measuring processes, all together: until the first step (each, in")
    print("brackets), and in the passes. Up to two estimates run at a time. The rest is the command's own:")
    print("imports, the store, and pages.\n")
    print(markdown_table(["command", *checkouts], list(parts(taken, checkouts))))


def timed(checkouts: dict[str, Path], folder: Path) -> Any:
    """Yield each command, and its runs in each checkout."""
    for number, (command, times) in enumerate(COMMANDS.items()):
        is_again = command.startswith("=")
        words = command.removeprefix("=").split()
        taken: dict[str, list[Took]] = {name: [] for name in checkouts}
        for run in range(times):
            for name, checkout in checkouts.items():
                within = folder / name / f"{number - is_again}_{run}"
                taken[name].append(alone(checkout, within, words))
        told = "the same again" if is_again else f"`dpprof {command}`"
        print(told, taken, file=sys.stderr, flush=True)
        yield told, taken


def totals(taken: dict[str, dict[str, list[Took]]], checkouts: dict[str, Path]) -> Any:
    for command, runs in taken.items():
        seconds = [statistics.median(each.seconds for each in runs[name]) for name in checkouts]
        mib = [max(each.mib for each in runs[name]) for name in checkouts]
        number = str(len(runs["now"]))
        yield [command, number, *(f"{s:.2f}" for s in seconds), *(f"{m:,.0f}" for m in mib)]


def parts(taken: dict[str, dict[str, list[Took]]], checkouts: dict[str, Path]) -> Any:
    for command, runs in taken.items():
        cells = [", ".join(spent(runs[name][-1])) for name in checkouts]
        if any(cells):
            yield [command, *cells]


def spent(took: Took) -> Any:
    """Yield each part's seconds."""
    for name, seconds in sorted(took.within.items(), key=lambda one: -sum(one[1])):
        each = f" ({len(seconds)} x {statistics.median(seconds):.1f})" if name == STARTUP else ""
        if sum(seconds) >= 0.1:
            yield f"{name} {sum(seconds):.1f}{each}"


def alone(checkout: Path, within: Path, words: list[str]) -> Took:
    """Run a command of a checkout in a folder."""
    within.mkdir(parents=True, exist_ok=True)
    own = {
        "PYTHONPATH": str(checkout),
        "MLFLOW_TRACKING_URI": f"sqlite:///{within / 'mlflow.db'}",
    }
    command = [sys.executable, __file__, ONE, *words]
    ended = subprocess.run(command, cwd=within, env=os.environ | own, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{words} in {checkout}: {ended.stderr}")
    return Took(*json.loads(ended.stdout.splitlines()[-1]))


def once(words: list[str]) -> Took:
    began, known = time.perf_counter(), set(Path("runs").rglob("record.json"))
    subprocess.run([sys.executable, "-m", "dpprof", *words], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    within = defaultdict(list)
    for path in set(Path("runs").rglob("record.json")) - known:
        record = json.loads(path.read_text())
        if record.get("startup_s") is not None:
            within[STARTUP].append(record["startup_s"])
        for name, outcome in record.get("passes", {}).items():
            if outcome.get("seconds"):
                within[name].append(outcome["seconds"])
    return Took(seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, within)


if __name__ == "__main__":
    main()
