"""Does the process that starts while an experiment ends disturb any figure? Measures with and without it.

    python benchmarks/next_process.py FOLDER [--rounds 15] > docs/results/next_process.md

A round is a sweep of three `mini` cells, as `dpprof sweep` runs it, and the same sweep with one process at a
time: there each experiment's process starts after the one before it has ended. The two take turns at being
first. Its figures are a cell's median step, and its own time within the trace's operators; both as medians
over the rounds, and as the ratio of the two within a round, which a drift of the machine leaves alone. All
peaks of memory must be the same to the byte. Takes half an hour on 2 idle cores.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, median, quantiles, stdev

from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.vocabulary.formats import markdown_table

GRID = "sweep --trainers standard,ghost,fast --batch-sizes 8 --seq-lens 32 --model-sizes mini --device cpu"
AS_IT_IS = "from dpprof.cli.main import main; main()"
ONE_AT_A_TIME = f"""
from dpprof.drive.launch.local import LocalLauncher
LocalLauncher.start_early = lambda launcher: None
{AS_IT_IS}
"""
WAYS = {"next one starts early": AS_IT_IS, "one at a time": ONE_AT_A_TIME}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    found: dict[str, list[dict[str, Record]]] = {way: [] for way in WAYS}
    for index in range(options.rounds):
        for way in list(WAYS)[:: -1 if index % 2 else 1]:
            found[way].append(sweep(options.folder, way, index))
    report(found)


def sweep(folder: Path, way: str, index: int) -> dict[str, Record]:
    """Measure the cells; return each one's record, by its name."""
    name = f"{way.replace(' ', '_')}-{index:02}"
    with (folder / f"{name}.log").open("w") as log:
        subprocess.run(
            [sys.executable, "-c", WAYS[way], *GRID.split(), "--sweep-name", name],
            cwd=folder,
            env=os.environ | {"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
        )
    records = {}
    for path in sorted((folder / "runs" / name).glob("*/record.json")):
        record = RunFolder(path.parent).read_record()
        assert record is not None
        assert record.startup_s is not None
        records[path.parent.name] = record
        print(name, path.parent.name, f"{1000 * step_s(record):.1f} ms", f"start {record.startup_s:.2f} s",
              file=sys.stderr, flush=True)  # fmt: skip
    return records


def step_s(record: Record) -> float:
    return median(record.step_s)


def traced_s(record: Record) -> float:
    return sum(row.self_s for row in record.operators or ()) / (record.traced_steps or 1)


def peaks(record: Record) -> tuple[object, ...]:
    """All peaks of memory in bytes; not the resident set, which the system rounds as it likes."""
    memory, ledger = record.memory, record.ledger
    assert memory is not None
    assert ledger is not None
    return memory.peak_allocated, memory.phase_peak, memory.step_peak, ledger.peak, ledger.phase_peak


def report(found: dict[str, list[dict[str, Record]]]) -> None:
    early, alone = found.values()
    pairs = list(zip(early, alone, strict=True))
    environment = next(iter(early[0].values())).environment
    print("# Does the process that starts early disturb any figure?\n")
    print(
        f"`python benchmarks/next_process.py`: {len(early)} rounds, Python {environment['python']}, "
        f"torch {environment['torch_version']}, Opacus {environment['opacus_version']}, "
        f"{environment['cpu']}, {environment['cpu_cores']} cores.\n"
    )
    print(
        "Milliseconds are medians over the rounds, with their quartiles; ratios are taken within a round.\n"
    )
    for title, figure in (("Step", step_s), ("Operators of a traced step", traced_s)):
        rows = [row(name, figure, early, alone) for name in early[0]]
        print(markdown_table([title, *(f"{way}, ms" for way in WAYS), "ratio"], rows))
    logs = [log(step_s(one[name]) / step_s(other[name])) for one, other in pairs for name in one]
    mean, error = fmean(logs), stdev(logs) / sqrt(len(logs))
    print(f"All {len(logs)} ratios of steps together: {exp(mean):.3f}, standard error {error:.3f}.")
    same = sum(peaks(one[name]) == peaks(other[name]) for one, other in pairs for name in one)
    starts = {way: median(r.startup_s or 0 for each in found[way] for r in each.values()) for way in WAYS}
    print(f"Peaks of memory the same to the byte: in {same} of {len(early) * len(early[0])} pairs of runs.")
    print("From being given the experiment to a trainer that is ready: "
          + ", ".join(f"{seconds:.2f} s ({way})" for way, seconds in starts.items()) + ".")  # fmt: skip


def row(
    name: str,
    figure: Callable[[Record], float],
    early: list[dict[str, Record]],
    alone: list[dict[str, Record]],
) -> list[str]:
    each = [[1000 * figure(records[name]) for records in way] for way in (early, alone)]
    ratios = [one / other for one, other in zip(*each, strict=True)]
    return [name, *(spread(values, 1) for values in each), spread(ratios, 3)]


def spread(values: Iterable[float], digits: int) -> str:
    """Median, and lower and upper quartile."""
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


if __name__ == "__main__":
    main()
