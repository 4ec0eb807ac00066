"""One rank of several, three times: estimated, alone on real tensors, and among real ranks under gloo.

    python benchmarks/ranks.py > docs/results/ranks_cpu.md

For every trainer that ranks can share, in each way: the estimated peak of rank 0 (fake tensors, fake process
group), what torch's CPU allocator says of the same rank alone (real tensors, fake process group), and what
the ledger sees of it among real ranks, of which 64 are too many for one machine. Then estimates of large
models: how long they take, and how much memory. About a quarter of an hour on 2 cores; the times need an idle
machine.
"""

import gc
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import opacus
import torch
import torch.distributed as dist

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment, to_flat
from dpprof.errors import describe_error
from dpprof.measure.passes import memory
from dpprof.measure.passes.estimate_ledger import CpuLedger
from dpprof.measure.passes.ledger import Ledger, keep_ledger
from dpprof.measure.passes.subject import Subject
from dpprof.measure.ranks import one_rank_of_many
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.training import Training
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.trainers import TRAINERS, short_name
from dpprof.vocabulary.units import GIB

MODELS = ("tiny", "small")
RANKS = (2, 3, 8, 64)
MOST_REAL_RANKS = 8
LARGE = (("1b", 8), ("1b", 64), ("7b", 8), ("7b", 64))
WAYS = [(name, way) for name, info in TRAINERS.items() for way in info.parallel if way != NONE]


def config_of(trainer: str, way: str, model: str, world_size: int) -> ExperimentConfig:
    """Batch 2 of sequence 16 on each rank."""
    shared = {"trainer": trainer, "parallel": way, "world_size": world_size, "model_size": model}
    size = {"batch_size": 2, "seq_len": 16, "device": "cpu"}
    return parse_experiment(shared | size, EstimatingConfig).resolve(cuda_available=False)


def cases(world_size: int) -> Iterator[tuple[str, ExperimentConfig]]:
    """Every model and way, with a name for each."""
    for model in MODELS:
        for trainer, way in WAYS:
            yield f"{model} {trainer} {way}", config_of(trainer, way, model, world_size)


def alone(world_size: int) -> None:
    """Print for each case the estimated peak and the allocator's, of rank 0 alone."""
    for name, config in cases(world_size):
        try:
            with one_rank_of_many(config, 0), fake_tensors(load_trainer(config.trainer)):
                ledger = keep_ledger(partial(Training, config), CpuLedger(), 1).result
            gc.collect()  # what is freed while it records counts
            record = Record(to_flat(config), {})
            with one_rank_of_many(config, 0):
                memory.run(Subject(config, RunFolder("unused"), record))
            found: Any = [ledger.peak, ledger.at_peak, record.memory.peak_allocated]
        except Exception as error:
            found = describe_error(error).splitlines()[0][:120]
        print(json.dumps([name, found]), flush=True)


def among(rank: int, world_size: int, meeting: str) -> None:
    """Print on rank 0 for each case the ledger's peak among real ranks, and the largest reduce-scatter."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size)
    for name, config in cases(world_size):
        try:
            ledger = keep_ledger(partial(Training, config), Ledger("cpu"), 1).result
            found: Any = [ledger.peak, ledger.at_peak]
        except Exception as error:
            found = describe_error(error).splitlines()[0][:120]
        if rank == 0:
            print(json.dumps([name, found]), flush=True)
        dist.barrier()
    dist.barrier()
    os._exit(0)


def differing(at_peak: dict[str, int], estimated: dict[str, int]) -> str:
    """The categories that hold more or less at the peak than estimated."""
    names = dict.fromkeys([*at_peak, *estimated])
    more = {name: at_peak.get(name, 0) - estimated.get(name, 0) for name in names}
    return ", ".join(f"{name} {by:+,}" for name, by in more.items() if by)


def said_by(*arguments: object) -> "subprocess.Popen[str]":
    """This script once more."""
    line = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, text=True, env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    )


def answers(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What it printed, by case."""
    text, _ = process.communicate()
    return dict(json.loads(line) for line in text.splitlines() if line.startswith("["))


def rows(world_size: int) -> Iterator[list[str]]:
    """A row for each case with so many ranks."""
    by_one = answers(said_by("alone", world_size))
    by_all: dict[str, Any] = {}
    if world_size <= MOST_REAL_RANKS:
        with TemporaryDirectory() as folder:
            ranks = [said_by("among", rank, world_size, f"{folder}/meeting") for rank in range(world_size)]
            by_all = next(iter([answers(rank) for rank in ranks]))
    for name, found in by_one.items():
        model, trainer, way = name.split()
        row = [model, str(world_size), short_name(trainer), way]
        if isinstance(found, str):
            yield [*row, "fails", "", "", found]
            continue
        estimated, held, allocated = found
        real = by_all.get(name)
        if real is None or isinstance(real, str):
            yield [*row, f"{estimated:,}", f"{allocated - estimated:+,}", real or "", ""]
            continue
        peak, at_peak = real
        why = differing(at_peak, held) if peak != estimated else ""
        yield [*row, f"{estimated:,}", f"{allocated - estimated:+,}", f"{peak - estimated:+,}", why]


def large(model: str, world_size: int, trainer: str) -> list[str]:
    """How long the estimate of a large model takes, as `dpprof estimate` makes it, and its memory."""
    with TemporaryDirectory() as path:
        folder = RunFolder(Path(path) / "run")
        settings = {"trainer": trainer, "parallel": "fsdp2", "world_size": world_size, "model_size": model}
        folder.create(
            parse_experiment(settings | {"target": "H100"}, EstimatingConfig).resolve(cuda_available=False)
        )
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "dpprof.measure", str(folder.path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        record = folder.read_record()
        assert status == 0, "the estimate failed"
        assert record is not None, "it left a record"
        needed = f"{(record.memory.peak_allocated or 0) / GIB:.2f}"
        rss = f"{usage.ru_maxrss * 1024 / GIB:.2f}"
        return [model, str(world_size), short_name(trainer), needed, f"{seconds:.0f}", rss]


def main() -> None:
    """Print both tables."""
    print("# Ranks\n")
    print(
        f"`python benchmarks/ranks.py`, torch {torch.__version__}, Opacus {opacus.__version__}, CPU. Batch 2 "
        "and sequence 16 on each rank; the peak of rank 0 in bytes. Alone: what torch's allocator says of "
        "the rank on real tensors and torch's fake process group, less the estimate. Among: what the ledger "
        "sees of it among real ranks under gloo, less the estimate, and the categories that differ: gloo "
        "copies what it reduce-scatters, which is not in the others, and may move the peak to another "
        "moment of the step. How long its copies live depends on the other ranks, so these differences "
        "change from one run to the next.\n"
    )
    header = ["model", "ranks", "trainer", "way", "estimated", "alone", "among", ""]
    found = [row for world_size in RANKS for row in rows(world_size)]
    print(markdown_table(header, found, right=4))
    print("\n## Estimates of large models\n")
    print("Batch 4, sequence 512, `fsdp2`, one estimate at a time, savings among it.\n")
    times = [
        large(model, world_size, trainer)
        for model, world_size in LARGE
        for trainer, way in WAYS
        if way == "fsdp2"
    ]
    print(markdown_table(["model", "ranks", "trainer", "GiB", "s", "RSS GiB"], times, right=3))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    match sys.argv[1:]:
        case ["alone", world_size]:
            alone(int(world_size))
        case ["among", rank, world_size, meeting]:
            among(int(rank), int(world_size), meeting)
        case _:
            main()
