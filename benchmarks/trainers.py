"""What each algorithm costs: time, peak memory and FLOPs, in rounds that alternate.

    python benchmarks/trainers.py > docs/results/trainers_cpu.md

On `small` with batch 8 and sequence 256 all default trainers; on a wide model with short sequences and on a
narrow one with long sequences also every form of norm that can be forced. One process; in every round each
trainer does one step, so that a slow moment of the machine strikes all of them. Peaks and FLOPs come from the
ledger, to the byte. About ten minutes on 2 cores; run it on a machine that is idle.
"""

import gc
import itertools
import statistics
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import opacus
import torch

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment, to_flat, with_own_options
from dpprof.config.measuring import MeasuringConfig
from dpprof.measure.environment import describe_environment
from dpprof.measure.observe import Observer
from dpprof.measure.passes.ledger import Ledger, keep_ledger
from dpprof.measure.trainers.training import Training
from dpprof.record.figures.ledger import flops_in_theory, flops_of_layers
from dpprof.record.record import Record
from dpprof.vocabulary.clipping import BLOCKED, EXPLICIT, GRAM, MIXED
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, short_name
from dpprof.vocabulary.units import MIB

NUM_ROUNDS = 15
OWN = ("DPBookKeepingTrainer", "DPMixedGhostTrainer")
CELLS: dict[str, dict[str, Any]] = {
    "small, batch 8, sequence 256": {"model_size": "small", "batch_size": 8, "seq_len": 256},
    "wide (hidden 1024), batch 8, sequence 32": {
        "model_size": "small",
        "hidden_dim": 1024,
        "num_layers": 2,
        "vocab_size": 1000,
        "batch_size": 8,
        "seq_len": 32,
    },
    "narrow (hidden 64), batch 1, sequence 4096": {
        "model_size": "tiny",
        "batch_size": 1,
        "seq_len": 4096,
    },
}
WITH_FORMS = ("wide", "narrow")


class Row(NamedTuple):
    """One trainer of a cell, its step times in seconds, its peak in bytes and its FLOPs."""

    name: str
    seconds: list[float]
    peak: int
    flops: int
    theory: int | None

    @property
    def median(self) -> float:
        """The median step."""
        return statistics.median(self.seconds)

    def beside(self, first: "Row") -> list[str]:
        """Name, median and half the interquartile range in ms, peak in MiB, with ratios to the first row."""
        quartiles = statistics.quantiles(self.seconds, n=4)
        return [
            self.name,
            f"{1e3 * self.median:.1f}",
            f"{1e3 * (quartiles[2] - quartiles[0]) / 2:.1f}",
            f"{self.median / first.median:.2f}",
            f"{self.peak / MIB:.2f}",
            f"{self.peak / first.peak:.3f}",
        ]


def configs(cell: str) -> dict[str, ExperimentConfig]:
    """The experiments of a cell by name: those of own trainers in every form where forms are compared."""
    found = {}
    for trainer in DEFAULT_TRAINERS:
        forms = [MIXED]
        if trainer in OWN and cell.startswith(WITH_FORMS):
            forms += [GRAM, EXPLICIT, BLOCKED]
        for form in forms:
            options = {"norm": form} if trainer in OWN else {}
            config = ExperimentConfig(trainer=trainer, device="cpu", options=options, **CELLS[cell])
            name = short_name(trainer) + ("" if form == MIXED else f", norm={form}")
            found[name] = with_own_options(config).resolve(cuda_available=False)
    return found


def with_default_trainers(settings: dict[str, Any]) -> dict[str, ExperimentConfig]:
    """The experiments of a cell on the CPU by the trainer's short name."""
    return {
        short_name(trainer): parse_experiment(
            settings | {"trainer": trainer, "device": "cpu"}, MeasuringConfig
        ).resolve(cuda_available=False)
        for trainer in DEFAULT_TRAINERS
    }


def timed(trainings: dict[str, Training], num_rounds: int) -> dict[str, list[float]]:
    """Seconds of each step, a step of each in turn, in an order that moves on by one; two rounds warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in trainings}
    names = itertools.cycle(trainings)
    for index in range(2 + num_rounds):
        for name in itertools.islice(names, len(trainings)):
            start = time.perf_counter()
            trainings[name].run(1, Observer())
            if index >= 2:
                seconds[name].append(time.perf_counter() - start)
        next(names)
    return seconds


def rows(planned: dict[str, ExperimentConfig], num_rounds: int = NUM_ROUNDS) -> list[Row]:
    """Every trainer of a cell."""
    seconds = timed({name: Training(config) for name, config in planned.items()}, num_rounds)
    return [row_of(name, config, seconds[name]) for name, config in planned.items()]


def row_of(name: str, config: ExperimentConfig, seconds: list[float]) -> Row:
    """A trainer's times with the ledger of one step."""
    gc.collect()
    result = keep_ledger(lambda: Training(config), Ledger("cpu"), 1).result
    theory = flops_in_theory(Record(to_flat(config), {}), result)
    return Row(name, seconds, result.peak, flops_of_layers(result), theory)


def table(found: list[Row]) -> str:
    """The rows against the first one, standard training."""
    first = found[0]
    header = ["trainer", "step ms", "± half IQR", "x", "peak MiB", "x", "GFLOP", "in theory"]
    lines = []
    for row in found:
        theory = "" if row.theory is None else f"{row.theory / 1e9:.3f}"
        lines.append([*row.beside(first), f"{row.flops / 1e9:.3f}", theory])
    return markdown_table(header, lines, right=1)


def made_by(script: str, num_rounds: int, packages: Sequence[ModuleType]) -> str:
    """How and with what the figures were measured."""
    return f"`python benchmarks/{script}`: {num_rounds} rounds in turn. {versions_of(packages)}."


def versions_of(packages: Sequence[ModuleType]) -> str:
    """Versions, and the processor."""
    versions = ", ".join(f"{package.__name__} {package.__version__}" for package in packages)
    return f"{versions}, {describe_environment('cpu')['cpu']}, {torch.get_num_threads()} threads"


def main() -> None:
    print("# What each algorithm costs on a CPU\n")
    print(made_by("trainers.py", NUM_ROUNDS, (torch, opacus)))
    print("x is the ratio to standard. GFLOP leaves attention out, as the theory does.\n")
    for cell in CELLS:
        print(f"## {cell}\n\n{table(rows(configs(cell)))}", flush=True)


if __name__ == "__main__":
    main()
