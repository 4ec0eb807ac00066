"""Does the clean pass report what a bare training loop takes?

    python benchmarks/bare_loop.py [--model-size small] [--batch-size 4] [--seq-len 128] [--rounds 20]

For each trainer, in one process and in turns: a block of steps timed as the clean pass times them, and a
block of the loop in PyTorch's or Opacus's tutorial, timed as a whole. Prints the medians, and the
median of the ratio round by round, so that a drift of the machine's speed cancels.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import opacus
import torch
from tutorial_loops import Loop, make_loop

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.environment import describe_environment
from dpprof.measure.observe import Observer
from dpprof.measure.passes.clean import Stopwatch
from dpprof.measure.trainers.training import Training
from dpprof.measure.workloads.workload import build_workload
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

STEPS_PER_BLOCK = 5


def synchronise(config: ExperimentConfig) -> None:
    if config.device == "cuda":
        torch.cuda.synchronize()


def bare_block(config: ExperimentConfig, train: Loop, batches: Iterator[Any]) -> float:
    """Seconds per step of a block of the tutorial's loop."""
    block = [next(batches) for _ in range(STEPS_PER_BLOCK)]
    synchronise(config)
    started = time.perf_counter()
    train(block, nullcontext)
    synchronise(config)
    return (time.perf_counter() - started) / STEPS_PER_BLOCK


def clean_block(config: ExperimentConfig, training: Training) -> float:
    """Mean seconds per step of a block as the clean pass measures it."""
    stopwatch = Stopwatch(on_cuda=config.device == "cuda")
    synchronise(config)
    training.run(STEPS_PER_BLOCK, stopwatch)
    synchronise(config)
    return statistics.fmean(stopwatch.results()[0])


def compare(config: ExperimentConfig, rounds: int) -> tuple[float, float, float]:
    """Median seconds of the clean pass and of the bare loop, and the median ratio of the rounds."""
    training = Training(config)
    own = build_workload(config)
    train, batches = make_loop(config, own), iter(own.batches)
    training.run(3, Observer())
    bare_block(config, train, batches)
    clean, bare = [], []
    for index in range(rounds):
        for measure_clean in (True, False) if index % 2 else (False, True):
            if measure_clean:
                clean.append(clean_block(config, training))
            else:
                bare.append(bare_block(config, train, batches))
    ratio = statistics.median(c / b for c, b in zip(clean, bare, strict=True))
    return statistics.median(clean), statistics.median(bare), ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model-size", default="small")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    base = ExperimentConfig(
        model_size=options.model_size, batch_size=options.batch_size, seq_len=options.seq_len
    ).resolve(cuda_available=torch.cuda.is_available())
    machine = describe_environment(base.device)
    print(
        f"{options.model_size}, batch {options.batch_size}, sequence {options.seq_len}, "
        f"{options.rounds} rounds of {STEPS_PER_BLOCK} steps; "
        f"torch {torch.__version__}, Opacus {opacus.__version__}, "
        f"{machine.get('gpu', machine['cpu'])}, {machine['cpu_cores']} cores\n"
    )
    print("| trainer | clean pass ms | bare loop ms | median ratio |")
    print("| --- | ---: | ---: | ---: |")
    for trainer in DEFAULT_TRAINERS:
        config = dataclasses.replace(base, trainer=trainer)
        clean, bare, ratio = compare(config, options.rounds)
        print(f"| {trainer} | {1e3 * clean:.1f} | {1e3 * bare:.1f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
