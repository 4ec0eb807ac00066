"""What does an idle `dpprof.profile` cost the loop around which it stays?

    python benchmarks/own_loop/overhead.py > docs/results/own_loop_overhead.md

For each loop, pairs of processes in alternating order: one trains within `dpprof.profile`, calls
`prof.step()` after each step, and is timed once everything is measured; the other is the bare loop. Takes six
minutes on an idle machine.
"""

import argparse
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

import dpprof
from dpprof.measure.environment import describe_environment

PAIRS = 11
BLOCKS = 25
BEFORE = 40  # steps before the timed ones; the measurement takes 23 of them
TEXT = """# What an idle `dpprof.profile` costs

`python benchmarks/own_loop/overhead.py`: {machine}, {cores} cores, Python {python}, torch {torch}.

{pairs} pairs of processes in alternating order. `idle` trains within `dpprof.profile` after everything was
measured, and still calls `prof.step()`; `bare` is the loop without it. A process's figure is the median of
{blocks} blocks of steps. `ratio` is the median over pairs of idle / bare, with their quartiles.

| loop | bare ms | idle ms | ratio | quartiles |
| --- | ---: | ---: | ---: | ---: |
"""


class Loop(NamedTuple):
    """A loop's model, the shape of its inputs, and the steps of a timed block."""

    text: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    steps: int


LOOPS = {
    "tiny": Loop(
        "two linear layers, 16 samples of 32 numbers",
        lambda: nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)),
        (16, 32),
        400,
    ),
    "encoder": Loop(
        "two transformer layers, 8 samples of 64 tokens",
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, batch_first=True), 2),
        (8, 64, 128),
        5,
    ),
}


@contextmanager
def bare() -> Iterator[Callable[[], None]]:
    yield lambda: None


@contextmanager
def idle() -> Iterator[Callable[[], None]]:
    with tempfile.TemporaryDirectory() as folder, dpprof.profile(runs_dir=folder) as prof:
        yield prof.step
        assert prof.is_complete


def measure(loop: Loop, side: str) -> float:
    """Median seconds of a step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = loop.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(loop.shape)
    blocks = []
    with {"bare": bare, "idle": idle}[side]() as after_step:

        def train(steps: int) -> None:
            for _ in range(steps):
                optimizer.zero_grad()
                model(inputs).pow(2).mean().backward()
                optimizer.step()
                after_step()

        train(BEFORE)
        for _ in range(BLOCKS):
            began = time.perf_counter()
            train(loop.steps)
            blocks.append((time.perf_counter() - began) / loop.steps)
    return statistics.median(blocks)


def compare(name: str) -> str:
    """A row of the table."""
    seconds: dict[str, list[float]] = {"bare": [], "idle": []}
    for number in range(PAIRS):
        for side in ("bare", "idle") if number % 2 else ("idle", "bare"):
            command = [sys.executable, __file__, "--loop", name, "--side", side]
            seconds[side].append(float(subprocess.check_output(command, text=True)))
    ratios = [i / b for i, b in zip(seconds["idle"], seconds["bare"], strict=True)]
    low, middle, high = statistics.quantiles(ratios)
    one, other = (f"{1e3 * statistics.median(seconds[side]):.3f}" for side in ("bare", "idle"))
    return f"| {LOOPS[name].text} | {one} | {other} | {middle:.4f} | {low:.4f} to {high:.4f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--loop", choices=LOOPS)
    parser.add_argument("--side", choices=["bare", "idle"])
    options = parser.parse_args()
    if options.side:
        print(measure(LOOPS[options.loop], options.side))
        return
    machine = describe_environment("cpu")
    print(
        TEXT.format(
            machine=machine["cpu"],
            cores=machine["cpu_cores"],
            python=platform.python_version(),
            torch=torch.__version__,
            pairs=PAIRS,
            blocks=BLOCKS,
        ),
        end="",
    )
    for name in LOOPS:
        print(compare(name), flush=True)


if __name__ == "__main__":
    main()
