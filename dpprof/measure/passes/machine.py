"""The passes that measure the machine beside the training: its pace and its ceilings.

The pace pass alternates steps with a fixed computation, a small network trained with plain PyTorch. A shared
machine's speed changes by a third and more from one second to the next; since both slow down about alike,
their ratio, pair by pair, tells that from a change in the code.

The ceilings pass measures the machine's maxima for the roofline, the best of several tries: a copy of a
tensor larger than the usual caches, and a square matrix product in the type in which the model's are: bf16
under autocast, else that of most weights, fp32 without TF32 (torch's default).
"""

import gc
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpprof.measure.observe import Observer
from dpprof.measure.passes.subject import Subject
from dpprof.measure.passes.traffic import makes_nothing
from dpprof.measure.trainers.products import products_in
from dpprof.record.record import Ceilings, Pace
from dpprof.vocabulary.precision import BF16, FP16, FP32, FP64

# Rows and width of the fixed network, for milliseconds of work.
_SIZES = {"cpu": (128, 64), "cuda": (8192, 1024)}
NUM_BLOCKS = 8
# Bytes copied and rows of the square matrices, large enough for full speed.
COPY_BYTES = {"cpu": 2**28, "cuda": 2**30}
MATRIX_ROWS = {"cpu": 2048, "cuda": 8192}
_TRIES = 7
# So long that a warm-up does not matter: a processor without units for bfloat16 multiplies these in a minute.
_LONG_S = 5.0
_DTYPES = {BF16: torch.bfloat16, FP16: torch.float16, FP64: torch.float64}


def run_pace(subject: Subject) -> None:
    """Time `measured_steps` steps, each followed by the fixed computation, and put both into the record."""
    config = subject.config
    training = subject.build(is_timed=True)
    compute = fixed_computation(config.device)
    for _ in range(config.measuring.warmup_steps):
        training.run(1, Observer())
        compute()
    gc.collect()
    pace = Pace(step_s=[], fixed_s=[])
    for _ in range(config.measuring.measured_steps):
        pace.step_s.append(_seconds(lambda: training.run(1, Observer()), config.device))
        pace.fixed_s.append(_seconds(compute, config.device))
    subject.record.pace = pace


def fixed_computation(
    device: str, num_blocks: int = NUM_BLOCKS, sizes: tuple[int, int] | None = None
) -> Callable[[], None]:
    """Return a function that runs forward and backward of a fixed stack of linear layers."""
    rows, width = sizes or _SIZES[device]
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


@cache
def issue_s(device: str = "cpu") -> float:
    """Return what Python, autograd and the dispatcher take for an operator, on the host.

    It is the fastest step of a network too small to compute anything, over its operators without views: on a
    CPU, whose processors others may have, by the processor time of its one thread.
    """
    compute = fixed_computation(device, sizes=(2, 4))
    now = time.thread_time if device == "cpu" else time.perf_counter
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with (operators := _Operators()):
        compute()
    clock = [now()]
    for _ in range(10 * _TRIES):
        compute()
        clock.append(now())
    torch.set_num_threads(threads)
    return min(end - start for start, end in pairwise(clock)) / operators.number


class _Operators(TorchDispatchMode):
    """Counts operators but views while entered."""

    number: int = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: torch's guard against compiling would import its compiler, in a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operator and run it."""
        self.number += not makes_nothing(func)
        return func(*args, **(kwargs or {}))


def run_ceilings(subject: Subject) -> None:
    """Measure both ceilings on the experiment's device, and in the type of its products."""
    device, precision = subject.config.device, subject.config.precision
    if precision == FP32:
        weights = subject.record.weights
        precision = max(weights, key=lambda dtype: weights[dtype], default=precision)
    with products_in(precision):
        in_type = matmul_flop_per_s(device, precision, MATRIX_ROWS[device])
    subject.record.ceilings = Ceilings(
        copy_bytes_per_s=copy_bytes_per_s(device, COPY_BYTES[device]),
        matmul_flop_per_s=in_type,
        precision=precision,
    )


def copy_bytes_per_s(device: str, num_bytes: int) -> float:
    """Return the bytes read and written per second by the copy of a tensor of `num_bytes`."""
    source = torch.ones(num_bytes // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _fastest(lambda: target.copy_(source), device)


def matmul_flop_per_s(device: str, precision: str, rows: int) -> float:
    """Return the FLOP per second of a square matrix product; a multiplication and an addition are two."""
    dtype = _DTYPES.get(precision, torch.float32)
    left, right = (torch.randn(rows, rows, dtype=dtype, device=device) for _ in range(2))
    product = torch.empty_like(left)
    return 2 * rows**3 / _fastest(lambda: torch.mm(left, right, out=product), device)


def _fastest(work: Callable[[], object], device: str) -> float:
    """Return the least seconds of some tries after a warm-up; those of the warm-up, if it takes long."""
    first = _seconds(work, device)
    return first if first > _LONG_S else min(_seconds(work, device) for _ in range(_TRIES))


def wait(device: str) -> None:
    """Wait until a GPU has done what was issued."""
    if device == "cuda":
        torch.cuda.synchronize()


def _seconds(work: Callable[[], object], device: str) -> float:
    wait(device)
    start = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - start
