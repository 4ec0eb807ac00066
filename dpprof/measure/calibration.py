"""Measures a table of operator times on the machine at hand (`config/device_times.py`).

Each operator runs on inputs that together exceed the usual caches, and gets new memory for its results, as in
a training. Its sizes, bytes and FLOPs are those that the ledger counts of it.
"""

import itertools
import json
import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from dpprof.config.device_times import (
    ROUNDS,
    SCHEMA,
    TIMES,
    TYPES,
    CollectiveTimes,
    DeviceTimes,
    OperatorTimes,
)
from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import DpprofError
from dpprof.measure.calibration_cases import MOST_BYTES, MOST_FLOPS, Case, Shape, cases
from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.passes.machine import (
    COPY_BYTES,
    MATRIX_ROWS,
    copy_bytes_per_s,
    issue_s,
    matmul_flop_per_s,
    wait,
)
from dpprof.measure.passes.operator_call import OperatorCall, sizes_of
from dpprof.measure.passes.predictor import Predictor
from dpprof.measure.passes.traffic import tensors_in
from dpprof.measure.rank import rank_of
from dpprof.measure.ranks import Ranks
from dpprof.process import others_processor_s, processor
from dpprof.record.files import write_text
from dpprof.vocabulary.operator_kinds import ELEMENTWISE, kind_of
from dpprof.vocabulary.parallel import ALL_GATHER, ALL_REDUCE, DDP, NONE, REDUCE_SCATTER
from dpprof.vocabulary.precision import BF16, FP32, TF32

SOURCE = "measured by dpprof calibrate"
# Inputs of one operator exceed this many bytes together, in at most so many copies.
_CACHED_BYTES, _MOST_COPIES = 2**26, 32
# One takes about so long a round, has at most so many runs, and keeps at most so many bytes of results.
_SECONDS, _MOST_RUNS, _HELD_BYTES = 0.015, {"cpu": 1000, "cuda": 50}, 2**28
# Cycles that a GPU sleeps for each run: longer than a host takes to issue an operator and its backward pass.
_SLEEP_CYCLES = 400_000
# Results from so many bytes on come several at a time, after a pause, as in a step: a system may take back
# memory that lies free.
_LARGE_BYTES, _LARGE_RUNS, _PAUSE_S = 2**30, 3, 2.0
# Numbers drawn at random, which larger tensors repeat.
_DRAWN = 2**20
# Compute capability of the first GPUs with units for TF32 and bf16.
_AMPERE = (8, 0)


class _Asked(NamedTuple):
    """A case in a precision, and the call that the ledger counts of it."""

    precision: str
    case: Case
    call: OperatorCall


def write_times(
    device: str, folder: Path, say: Callable[[str], None], precisions: Sequence[str] = (FP32,)
) -> None:
    """Measure the table of a device of this machine, and write it into a folder after each round.

    Several ranks, by `torchrun`'s variables, do so at the same time, and time their collectives together.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    parallel = DDP if world_size > 1 else NONE
    config = ExperimentConfig(device=device, parallel=parallel, world_size=world_size)
    ranks = Ranks(config, rank_of(config))
    collectives: list[CollectiveTimes] = []
    for times in measure(device, say if ranks.rank == 0 else lambda text: None, precisions):
        if world_size > 1 and not collectives:
            ranks.meet()
            with ranks.together():
                collectives = list(_collectives(world_size, device))
        if ranks.rank == 0:
            threads = times.threads * ranks.here
            found = replace(times, collectives=collectives, ranks=world_size, threads=threads)
            write_text(folder / TIMES, json.dumps(asdict(found)))
    ranks.meet()  # the processor time of a rank that has ended would count as another process's
    ranks.leave()


def measure(
    device: str, say: Callable[[str], None], precisions: Sequence[str] = (FP32,)
) -> Iterator[DeviceTimes]:
    """Measure the table of a device; yield it after each round, of which each has times no longer.

    All precisions are in each round. `say` gets a line on each. Raises DpprofError if a GPU has none of them.
    """
    began, others = time.perf_counter(), others_processor_s()
    precisions = _possible(precisions, device, say)
    asked = list(_asked(device, precisions))
    taken, rates = [math.inf] * len(asked), None
    for number in range(1, ROUNDS + 1):
        say(f"timing {len(asked)} operators in {', '.join(precisions)}, round {number} of {ROUNDS}")
        taken = [min(us, 1e6 * _timed(each, device)) for us, each in zip(taken, asked, strict=True)]
        rates = rates or _rates(device, precisions)
        found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
        for (_, _, call), us in zip(asked, taken, strict=True):
            kind = kind_of(call.name, call.is_dense)
            found[kind, call.dtype].append([*sizes_of(call, kind), call.num_bytes, call.flops, us])
        smallest_us = _smallest_us(found, device)
        yield DeviceTimes(
            schema=SCHEMA,
            gpu=torch.cuda.get_device_name() if device == "cuda" else processor()["cpu"],
            device=device,
            tflops=rates.tflops,
            gb_per_s=rates.gb_per_s,
            operators=[OperatorTimes(*key, SOURCE, points) for key, points in found.items()],
            launch_us=smallest_us,
            issue_us=max(0.0, 1e6 * issue_s(device) - smallest_us * (device == "cpu")),
            versions={"torch": torch.__version__},
            others_pct=_others_pct(began, others),
            processors=int(processor()["cpu_cores"]),
            threads=torch.get_num_threads() if device == "cpu" else 1,  # which issues a GPU's operators
            rounds=number,
        )


def _others_pct(began: float, others: float | None) -> float | None:
    """Return what others had since then, in percent of one processor, if that is known."""
    seconds, others_now = time.perf_counter() - began, others_processor_s()
    if others is None or others_now is None:
        return None
    return max(0.0, 100 * (others_now - others) / seconds)  # counted in ticks: it may come out negative


def _possible(precisions: Sequence[str], device: str, say: Callable[[str], None]) -> list[str]:
    """Return the precisions that a device has units for; say which are left out."""
    lacking = {TF32, BF16} if device == "cuda" and torch.cuda.get_device_capability() < _AMPERE else set()
    found = [each for each in precisions if each not in lacking]
    if left_out := [each for each in precisions if each in lacking]:
        say(f"left out, as this GPU has no units for it: {', '.join(left_out)}")
    if not found:
        raise DpprofError(f"precisions: this GPU has none of {', '.join(precisions)}")
    return found


@contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Let torch multiply and convolve float32 in TF32 on a GPU while entered, or only in float32."""
    of_products, of_convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if precision == TF32 else "highest")
    torch.backends.cudnn.allow_tf32 = precision == TF32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(of_products)
        torch.backends.cudnn.allow_tf32 = of_convolutions


def _asked(device: str, precisions: Sequence[str]) -> Iterator[_Asked]:
    for precision in precisions:
        with computing_in(precision):
            for case in cases(precision, device, MOST_FLOPS[device], MOST_BYTES[device]):
                call = ledger_call(case, device)
                yield _Asked(precision, case, call._replace(dtype=TYPES[TF32]) if precision == TF32 else call)


def _timed(asked: _Asked, device: str) -> float:
    with computing_in(asked.precision):
        return seconds_of(asked.case, device)


class _Rates(NamedTuple):
    """The highest rates of a device: of products by type of numbers, and of a copy."""

    tflops: dict[str, float]
    gb_per_s: float


def _rates(device: str, precisions: Sequence[str]) -> _Rates:
    """Measure the rates; that of float32 always, which stands in for types that are not known."""
    tflops = {}
    for precision in dict.fromkeys((FP32, *precisions)):
        with computing_in(precision):
            tflops[TYPES[precision]] = matmul_flop_per_s(device, precision, MATRIX_ROWS[device]) / 1e12
    return _Rates(tflops, copy_bytes_per_s(device, COPY_BYTES[device]) / 1e9)


def _smallest_us(found: dict[tuple[str, str], list[list[float]]], device: str) -> float:
    """Return the time of the smallest elementwise operator, in float32 if that is measured."""
    for dtype in (TYPES[FP32], TYPES[BF16]):
        if points := found.get((ELEMENTWISE, dtype)):
            return min(points)[-1]
    return 1e6 * seconds_of(Case(torch.add, ((64, 64),) * 2), device)


def _collectives(world_size: int, device: str) -> Iterator[CollectiveTimes]:
    """Time the collectives among all ranks, by the bytes of the whole tensor; FSDP2's with its hooks."""
    around = _of_small_layers(device)
    for name in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER):
        points: list[list[float]] = []
        for power in range(10, 27, 2):
            numbers = 2**power // 4 // world_size * world_size
            whole, part = (torch.ones(size, device=device) for size in (numbers, numbers // world_size))
            taken = []
            run = {
                ALL_REDUCE: partial(dist.all_reduce, whole),
                ALL_GATHER: partial(dist.all_gather_into_tensor, whole, part),
                REDUCE_SCATTER: partial(dist.reduce_scatter_tensor, part, whole),
            }[name]
            for _ in range(7 if power > 20 else 25):
                wait(device)
                dist.barrier()
                start = time.perf_counter()
                run()
                wait(device)
                taken.append(time.perf_counter() - start)
            points.append([whole.nbytes, 1e6 * statistics.median(taken[1:])])
        points = [[size, us + max(0.0, around.get(name, 0.0) - points[0][1])] for size, us in points]
        yield CollectiveTimes(name, world_size, SOURCE, points)


def _of_small_layers(device: str) -> dict[str, float]:
    """Time a gather (in forward) and a reduction (in backward, after a gather) of FSDP2, by small layers."""
    us, mesh = [], init_device_mesh(device, (dist.get_world_size(),))
    for is_sharded in (False, True):
        layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64, device=device) for _ in range(8)))
        for module in (*layers, layers) * is_sharded:
            fully_shard(module, mesh=mesh)
        taken = []
        for _ in range(25):
            start, output = time.perf_counter(), layers(torch.ones(64, 64, device=device))
            wait(device)
            middle = time.perf_counter()
            output.sum().backward()
            wait(device)
            taken.append((middle - start, time.perf_counter() - middle))
        us.append([1e6 * statistics.median(each) / len(layers) for each in zip(*taken[1:], strict=True)])
    forward, backward = (sharded - whole for whole, sharded in zip(*us, strict=True))
    return {ALL_GATHER: forward, REDUCE_SCATTER: backward - forward}


def ledger_call(case: Case, device: str) -> OperatorCall:
    """Return the operator call as the ledger sees it: the largest, if there are several."""
    inputs = case.prepare(*(torch.empty(shape, dtype=case.dtype, device=device) for shape in case.shapes))
    predictor = Predictor(DeviceTimes(SCHEMA, "", device, {"float32": 1.0}, 1.0, []))
    ledger = Ledger(device, predictor=predictor)
    with ledger, ledger.counting():
        case.work(*inputs)
    return max(predictor.known, key=lambda call: (call.flops, call.num_bytes))


def seconds_of(case: Case, device: str) -> float:
    """Return the seconds of an operator, on other inputs each time.

    Results are kept, and freed together at the end, as the activations and gradients of a step are: memory
    that was given back costs the time to get it anew. The second time counts, as steps follow steps.
    """
    made = [_numbers(shape, device, case.dtype) for shape in case.shapes]
    copies = min(_MOST_COPIES, 1 + _CACHED_BYTES // sum(each.nbytes for each in made))
    inputs = itertools.cycle([case.prepare(*(each.clone() for each in made)) for _ in range(copies)])
    case.work(*next(inputs))
    once, size = _run(case, inputs, 1, device)
    large = size >= _LARGE_BYTES
    most = min(_SECONDS / once, _HELD_BYTES / max(size, 1), _MOST_RUNS[device])
    times = _LARGE_RUNS if large else int(most) or 1
    _run(case, inputs, times, device)
    time.sleep(_PAUSE_S * large)
    return _run(case, inputs, times, device)[0]


def _numbers(shape: Shape, device: str, dtype: torch.dtype | None) -> Tensor:
    """Return random numbers."""
    size = math.prod(shape)
    drawn = torch.randn(min(size, _DRAWN), dtype=dtype, device=device)
    return drawn.repeat(math.ceil(size / _DRAWN))[:size].view(shape)


def _run(case: Case, inputs: Iterator[tuple[Any, ...]], times: int, device: str) -> tuple[float, int]:
    """Run an operator so many times; return the seconds of one run, and the bytes of its results.

    A GPU sleeps until the host has issued them: a small operator takes less time on it than on the host.
    """
    wait(device)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * (device == "cuda"))]
    if events:
        torch.cuda._sleep(_SLEEP_CYCLES * times)
        events[0].record()
    start = time.perf_counter()
    held = [case.work(*next(inputs)) for _ in range(times)]
    for event in events[1:]:
        event.record()
    size = sum(each.nbytes for each in tensors_in(held[:1]))
    held.clear()
    wait(device)
    seconds = events[0].elapsed_time(events[1]) / 1e3 if events else time.perf_counter() - start
    return seconds / times, size
