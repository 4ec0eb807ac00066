"""The pace pass: steps alternate with a fixed computation: a slow machine must not look like slow code.

A shared machine changes its pace from one second to the next, by a third and more, and a step time alone
cannot tell that from a change in the code. A small network of fixed size, trained with plain PyTorch, slows
down with the machine about as much as the step does: the ratio of the two, pair by pair, stays the same.
"""

import gc
import time
from collections.abc import Callable

import torch
from torch import nn

from dpprof.measure.observe import Observer, Subject
from dpprof.record.record import Pace

# Rows and width of the fixed network: milliseconds of work for a CPU, and for a GPU.
_SIZES = {"cpu": (128, 64), "cuda": (8192, 1024)}
NUM_BLOCKS = 8


def run(subject: Subject) -> None:
    """Time `measured_steps` steps, each followed by the fixed computation, and put both into the record."""
    config = subject.config
    on_cuda = config.device == "cuda"
    training = subject.build(is_timed=True)
    compute = fixed_computation(config.device)
    for _ in range(config.measuring.warmup_steps):
        training.run(1, Observer())
        compute()
    gc.collect()
    pace = Pace(step_s=[], fixed_s=[])
    for _ in range(config.measuring.measured_steps):
        pace.step_s.append(_seconds(lambda: training.run(1, Observer()), on_cuda=on_cuda))
        pace.fixed_s.append(_seconds(compute, on_cuda=on_cuda))
    subject.record.pace = pace


def fixed_computation(device: str, num_blocks: int = NUM_BLOCKS) -> Callable[[], None]:
    """One forward and backward of a stack of linear layers: the same for every experiment on a device."""
    rows, width = _SIZES[device]
    with torch.device(device):
        blocks = [
            (nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.LayerNorm(width))
            for _ in range(num_blocks)
        ]
        network = nn.Sequential(*(module for block in blocks for module in block))
        inputs = torch.randn(rows, width)

    def compute() -> None:
        network.zero_grad()
        network(inputs).square().mean().backward()

    return compute


def _seconds(work: Callable[[], object], *, on_cuda: bool) -> float:
    if on_cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if on_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start
