"""The ceilings pass: the most that this machine reaches, for the roofline.

A copy of a tensor larger than the usual caches, and a square matrix product, as torch does them: in fp32
without TF32 (torch's default), or in bf16. The best of several tries counts: a ceiling is no typical value.
"""

import time
from collections.abc import Callable

import torch

from dpprof.measure.observe import Subject
from dpprof.record.record import Ceilings

# Bytes copied, and rows of the square matrices: long enough for full speed.
_COPY_BYTES = {"cpu": 2**28, "cuda": 2**30}
_MATRIX_ROWS = {"cpu": 2048, "cuda": 8192}
_TRIES = 7


def run(subject: Subject) -> None:
    """Measure both ceilings on the experiment's device and in its precision, into the record."""
    device, precision = subject.config.device, subject.config.precision
    subject.record.ceilings = Ceilings(
        copy_bytes_per_s=copy_bytes_per_s(device, _COPY_BYTES[device]),
        matmul_flop_per_s=matmul_flop_per_s(device, precision, _MATRIX_ROWS[device]),
        precision=precision,
    )


def copy_bytes_per_s(device: str, num_bytes: int) -> float:
    """Bytes read and written per second by the copy of a tensor of `num_bytes`."""
    source = torch.ones(num_bytes // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _fastest(lambda: target.copy_(source), device)


def matmul_flop_per_s(device: str, precision: str, rows: int) -> float:
    """FLOP per second of the product of square matrices; a multiplication and an addition are two."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = (torch.randn(rows, rows, dtype=dtype, device=device) for _ in range(2))
    product = torch.empty_like(left)
    return 2 * rows**3 / _fastest(lambda: torch.mm(left, right, out=product), device)


def _fastest(work: Callable[[], object], device: str) -> float:
    """Seconds of the fastest try, after one that does not count."""
    seconds = []
    for _ in range(1 + _TRIES):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
