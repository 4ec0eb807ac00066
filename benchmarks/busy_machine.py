"""Does a busy machine keep awards and intervals away? Measures one sweep again and again, quiet and not.

    python benchmarks/busy_machine.py FOLDER [--sweeps 10] [--busy 2]

A sweep is three `tiny` cells (standard, flat and fast gradient clipping), one run each, passes clean and
memory, measured in processes of their own as `dpprof sweep` does; only MLflow is left out. Quiet sweeps take
turns with sweeps beside `--busy` processes that do nothing but compute, by default as many as there are
processors. Run it where nobody else is: it cannot make a machine quiet.

An award is a DP trainer called fastest on the page or in the verdict, or recommended there; an interval that
of a ratio of step times in the verdict. Wrong is
- beside the load: a sweep with an award or an interval;
- quiet: a sweep with neither though every run of it was calm. Where the steps were restless, or others had
  the processors after all, a sweep rightly has neither; the table counts it as not calm.

Prints Markdown; what is kept is `docs/results/busy_machine.md`. Takes about 6 minutes on 2 cores.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.drive.jobs import Runner
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.run import drive_experiment
from dpprof.findings.comparison.comparison import Comparison, compare
from dpprof.findings.verdict.best import fastest_at
from dpprof.findings.verdict.extra import added
from dpprof.findings.verdict.verdict import verdict
from dpprof.record.figures.names import STEP
from dpprof.record.folder import RunFolder

TRAINERS = ("StandardTrainer", "DPSGDTrainer", "DPFastGradientClippingTrainer")
# Ends by itself too, should this script be killed.
BUSY = "import time\nend = time.monotonic() + 300\nwhile time.monotonic() < end: pass"
# What each sign of a disturbed run begins with, in the words of `calm.py`.
SIGNS = {"others": "others had", "switches": "it was preempted", "restless": "the interquartile range"}


@dataclass(frozen=True)
class Outcome:
    """What one sweep said, and what its runs were like."""

    is_calm: bool
    has_award: bool
    has_interval: bool
    reasons: list[list[str]]
    fast_over_flat: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    quiet, loaded = [], []
    machine: dict[str, str] = {}
    for index in range(options.sweeps):
        found = sweep(options.folder / f"quiet-{index:02}")
        machine = found.cells[0].environment
        quiet.append(outcome(found))
        with busy(options.busy):
            loaded.append(outcome(sweep(options.folder / f"loaded-{index:02}")))
        for told in (quiet[-1], loaded[-1]):
            print(told, file=sys.stderr, flush=True)
    print(
        f"{platform.system()}, Python {platform.python_version()}, torch {machine['torch_version']}, "
        f"Opacus {machine['opacus_version']}, {machine['cpu']}, {machine['cpu_cores']} cores, "
        f"torch with {machine['torch_threads']} threads.\n"
    )
    print("| machine | sweeps | calm | with an award | with an interval | wrong | fast / flat |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    print(row("quiet", quiet, sum(o.is_calm and not (o.has_award or o.has_interval) for o in quiet)))
    print(row(f"beside {options.busy} busy", loaded, sum(o.has_award or o.has_interval for o in loaded)))
    print(f"\n| of {len(TRAINERS) * options.sweeps} runs | {' | '.join(SIGNS)} | calm |")
    print("| --- " + "| ---: " * (len(SIGNS) + 1) + "|")
    print(signs("quiet", quiet))
    print(signs(f"beside {options.busy} busy", loaded))


def sweep(folder: Path) -> Comparison:
    """Measure the cells, each in a fresh process."""
    results = []
    for trainer in TRAINERS:
        config = ExperimentConfig(
            trainer=trainer,
            model_size="tiny",
            batch_size=2,
            seq_len=16,
            device="cpu",
            how=MeasuringConfig(passes="clean,memory"),
        ).resolve(cuda_available=False)
        run_folder = RunFolder(folder / config.run_name)
        result = drive_experiment(config, run_folder, Runner(LocalLauncher(), 1800, lambda _: None))
        if result.failure is not None:
            sys.exit(f"{result.name}: {result.failure.message}")
        results.append(result)
    return compare(folder.name, {folder.name: results})


def outcome(found: Comparison) -> Outcome:
    best = fastest_at(found.places[0])
    told = verdict(found)
    step = {cell.trainer: cell.figures[STEP] for cell in found.cells}
    return Outcome(
        is_calm=not any(cell.is_disturbed for cell in found.cells),
        has_award=bool(best and len(best.winners) == 1)
        or any(one.kind.startswith(("use.", "time.first")) for one in told),
        has_interval=any(one.ratio is not None for one in added(found)),
        reasons=[cell.runs[0].disturbances for cell in found.cells],
        fast_over_flat=step["DPFastGradientClippingTrainer"] / step["DPSGDTrainer"],
    )


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep `count` processors busy, with processes of our own that end with this."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def row(name: str, found: list[Outcome], wrong: int) -> str:
    counts = [
        sum(o.is_calm for o in found),
        sum(o.has_award for o in found),
        sum(o.has_interval for o in found),
    ]
    ratios = [o.fast_over_flat for o in found]
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"| {name} | {len(found)} | {' | '.join(map(str, counts))} | {wrong} | {spread} |"


def signs(name: str, found: list[Outcome]) -> str:
    """How many runs each sign marked, and how many none did."""
    runs = [reasons for o in found for reasons in o.reasons]
    counts = Counter(
        sign for run in runs for sign, start in SIGNS.items() if any(why.startswith(start) for why in run)
    )
    return f"| {name} | {' | '.join(str(counts[sign]) for sign in SIGNS)} | {sum(not run for run in runs)} |"


if __name__ == "__main__":
    main()
