"""Steps on a GPU beside their estimates: peaks, segments and times.

    python benchmarks/gpu_steps.py measure FOLDER     # on the GPU, without MLflow; two minutes on an H100
    python benchmarks/gpu_steps.py compare FOLDER TARGET > docs/results/h100.md

`measure` leaves a run folder of each experiment, measured by a process of its own that has imported torch
already. `compare` estimates the same experiments, anywhere; TARGET is a device's name or a table of
`dpprof calibrate`.
"""

import os
import statistics
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import opacus  # noqa: F401  imported once, before the forks
import torch
from clock import errors, percent

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.flat import parse_experiment
from dpprof.config.measuring import MeasuringConfig
from dpprof.measure.experiment import run_experiment
from dpprof.record.figures.capacity import TimeRange, predicted_s, step_of
from dpprof.record.folder import RunFolder
from dpprof.record.record import Memory, Record
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, short_name
from dpprof.vocabulary.units import MIB

# Model size, batch and sequence: the host decides how long the first takes, the GPU the others.
SHAPES = [("small", 8, 256), ("medium", 16, 512), ("1b", 4, 512), ("1b", 8, 1024)]
KEPT = ("trainer", "model_size", "batch_size", "seq_len", "precision")


class Both(NamedTuple):
    """One experiment, measured and estimated."""

    measured: Record
    estimated: Record
    time: TimeRange

    @property
    def seconds(self) -> float:
        """Median of the measured steps."""
        return statistics.median(self.measured.step_s)

    @property
    def name(self) -> str:
        """Trainer, model, batch x sequence, precision."""
        trainer, model, batch, length, precision = map(str, map(self.measured.config.__getitem__, KEPT))
        return f"{short_name(trainer)}, {model}, {batch} x {length}, {precision}"


def main() -> None:
    match sys.argv[1:]:
        case ["measure", folder]:
            measure(Path(folder))
        case ["compare", folder, target]:
            compare(Path(folder), target)
        case _:
            sys.exit(__doc__)


def measure(home: Path) -> None:
    for model, batch, length in SHAPES:
        for trainer in DEFAULT_TRAINERS:
            sizes = {"model_size": model, "batch_size": batch, "seq_len": length}
            settings = sizes | {"trainer": trainer, "device": "cuda", "passes": "clean"}
            config = parse_experiment(settings, MeasuringConfig).resolve(cuda_available=True)
            folder = RunFolder(home / config.run_name)
            if not folder.record.exists():
                in_fork(config, folder)
                print(config.run_name, file=sys.stderr)


def in_fork(config: Any, folder: RunFolder) -> None:
    """Run an experiment in a fork, into a new folder."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    try:
        folder.create(config)
        run_experiment(config, folder, lambda text: None)
    except BaseException:
        traceback.print_exc()
    os._exit(0)


def compare(home: Path, target: str) -> None:
    found = [both(RunFolder(path.parent), target) for path in sorted(home.glob("*/record.json"))]
    found.sort(key=lambda one: (one.measured.num_parameters or 0, one.seconds))
    environment = found[0].measured.environment
    print("# Estimates beside steps on a GPU\n")
    versions = "torch {torch_version}, Opacus {opacus_version}, Python {python}".format(**environment)
    print(f"`benchmarks/gpu_steps.py`: {environment['gpu']}, {versions},")
    print("`loop=documented`, 3 warm-up steps and 10 timed ones; estimated on a CPU with")
    print(f"torch {torch.__version__}, for `target={Path(target).name}`.\n")
    print("## Memory\n")
    print("MiB of torch's caching allocator: in blocks (`allocated`) and in segments (`reserved`).\n")
    columns = ["experiment", "allocated", "estimated", "off", "reserved", "estimated", "off"]
    rows = [[one.name, *memory_of(one)] for one in found]
    print(markdown_table(columns, rows, right=1))
    print("## Step times\n")
    print("Milliseconds of a step, predicted and measured; `held` says whether the range holds it.\n")
    columns = ["experiment", "predicted", "least", "most", "measured", "error", "held"]
    print(markdown_table(columns, [[one.name, *times_of(one)] for one in found], right=1))
    print(f"{errors([one.time.seconds / one.seconds - 1 for one in found])}.")


def both(folder: RunFolder, target: str) -> Both:
    record = folder.read_record()
    assert record is not None, folder.path
    settings = {name: record.config[name] for name in KEPT}
    config = parse_experiment(
        settings | {"device": "cuda", "target": target, "savings": False}, EstimatingConfig
    ).resolve(cuda_available=False)
    with TemporaryDirectory() as path:
        estimate = RunFolder(Path(path, "run"))
        in_fork(config, estimate)
        estimated = estimate.read_record()
    assert estimated is not None, "it was estimated"
    assert estimated.ledger is not None, "it was estimated"
    time = step_of(predicted_s(config, estimated.ledger))
    assert time is not None, "it is predicted"
    return Both(record, estimated, time)


def memory_of(one: Both) -> list[str]:
    found = []
    for name in ("peak_allocated", "peak_reserved"):
        measured, estimated = (bytes_of(each.memory, name) for each in (one.measured, one.estimated))
        found += [
            f"{measured / MIB:,.1f}",
            f"{estimated / MIB:,.1f}",
            f"{100 * (estimated / measured - 1):+.2f} %",
        ]
    return found


def bytes_of(memory: Memory, name: str) -> int:
    found: int = getattr(memory, name)
    return found


def times_of(one: Both) -> list[str]:
    figures = [f"{1e3 * seconds:,.1f}" for seconds in (*one.time, one.seconds)]
    is_held = one.time[1] <= one.seconds <= one.time[2]
    return [*figures, percent(one.time.seconds / one.seconds - 1), "yes" if is_held else "no"]


if __name__ == "__main__":
    main()
