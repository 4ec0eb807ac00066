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
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from dpprof.config.device_times import SCHEMA, TIMES, CollectiveTimes, DeviceTimes, OperatorTimes
from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.passes.clock import Clock, OperatorCall, sizes_of
from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.passes.machine import (
    COPY_BYTES,
    MATRIX_ROWS,
    copy_bytes_per_s,
    issue_s,
    matmul_flop_per_s,
    wait,
)
from dpprof.measure.passes.traffic import tensors_in
from dpprof.measure.place import place_in
from dpprof.measure.ranks import Ranks
from dpprof.process import others_processor_s, processor
from dpprof.record.files import write_text
from dpprof.vocabulary.operator_kinds import ELEMENTWISE, kind_of
from dpprof.vocabulary.parallel import ALL_GATHER, ALL_REDUCE, DDP, NONE, REDUCE_SCATTER

SOURCE = "measured by dpprof calibrate"
# Inputs of one operator exceed this many bytes together, in at most so many copies.
_CACHED_BYTES, _MOST_COPIES = 2**26, 32
# One takes about so long a round, has at most so many runs, and keeps at most so many bytes of results.
_SECONDS, _MOST_RUNS, _HELD_BYTES, _ROUNDS = 0.015, {"cpu": 1000, "cuda": 50}, 2**28, 2
# Cycles that a GPU sleeps for each run: longer than a host takes to issue an operator and its backward pass.
_SLEEP_CYCLES = 400_000
# Results from so many bytes on come several at a time, after a pause, as in a step: a system may take back
# memory that lies free.
_LARGE_BYTES, _LARGE_RUNS, _PAUSE_S = 2**30, 3, 2.0
# Numbers drawn at random, which larger tensors repeat.
_DRAWN = 2**20
# Larger ones are left out, by the device's speed.
_MOST_FLOPS, _MOST_BYTES = {"cpu": 1e10, "cuda": 2e13}, {"cpu": 2**27, "cuda": 2**32}
_VOCABULARY = 32_000
Shape = tuple[int, ...]


class Case(NamedTuple):
    """An operator, the shapes of random tensors, and what makes its arguments of these."""

    work: Callable[..., Any]
    shapes: tuple[Shape, ...]
    prepare: Callable[..., tuple[Any, ...]] = lambda *tensors: tensors


def write_times(device: str, folder: Path, say: Callable[[str], None]) -> None:
    """Measure the table of a device of this machine, and write it into a folder.

    Several ranks, by `torchrun`'s variables, do so at the same time, and time their collectives together.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    parallel = DDP if world_size > 1 else NONE
    config = ExperimentConfig(device=device, parallel=parallel, world_size=world_size)
    ranks = Ranks(config, place_in(config))
    times = measure(device, say if ranks.rank == 0 else lambda text: None)
    ranks.meet()
    with ranks.together():
        collectives = list(_collectives(world_size, device)) if world_size > 1 else []
    if ranks.rank == 0:
        found = replace(times, collectives=collectives, ranks=world_size)
        write_text(folder / TIMES, json.dumps(asdict(found)))
    ranks.leave()


def measure(device: str, say: Callable[[str], None]) -> DeviceTimes:
    """Measure the table of a device; `say` gets a line on each kind of operator."""
    began, others = time.perf_counter(), others_processor_s()
    asked = [(case, counted(case, device)) for case in cases(_MOST_FLOPS[device], _MOST_BYTES[device])]
    rounds: list[list[float]] = []
    for number in range(1, _ROUNDS + 1):
        say(f"timing {len(asked)} operators, round {number} of {_ROUNDS}")
        rounds.append([1e6 * seconds_of(case, device) for case, _ in asked])
    found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for (_, call), taken in zip(asked, zip(*rounds, strict=True), strict=True):
        kind = kind_of(call.name, call.is_dense)
        found[kind, call.dtype].append([*sizes_of(call, kind), call.num_bytes, call.flops, min(taken)])
    seconds, others_now = time.perf_counter() - began, others_processor_s()
    smallest_us = min(found[ELEMENTWISE, "float32"])[-1]
    return DeviceTimes(
        schema=SCHEMA,
        gpu=torch.cuda.get_device_name() if device == "cuda" else processor()["cpu"],
        device=device,
        tflops={"float32": matmul_flop_per_s(device, "fp32", MATRIX_ROWS[device]) / 1e12},
        gb_per_s=copy_bytes_per_s(device, COPY_BYTES[device]) / 1e9,
        operators=[OperatorTimes(*key, SOURCE, points) for key, points in found.items()],
        launch_us=smallest_us,
        issue_us=max(0.0, 1e6 * issue_s(device) - smallest_us * (device == "cpu")),
        versions={"torch": torch.__version__},
        others_pct=None if others is None or others_now is None else 100 * (others_now - others) / seconds,
    )


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


def counted(case: Case, device: str) -> OperatorCall:
    """Return the call that the ledger counts of an operator: of several, the one with the most work."""
    inputs = case.prepare(*(torch.empty(shape, device=device) for shape in case.shapes))
    clock = Clock(DeviceTimes(SCHEMA, "", device, {"float32": 1.0}, 1.0, []))
    ledger = Ledger(device, clock=clock)
    with ledger, ledger.counting():
        case.work(*inputs)
    return max(clock.known, key=lambda call: (call.flops, call.num_bytes))


def seconds_of(case: Case, device: str) -> float:
    """Return the seconds of an operator, on other inputs each time.

    Results are kept, and freed together at the end, as the activations and gradients of a step are: memory
    that was given back costs the time to get it anew. The second time counts, as steps follow steps.
    """
    made = [_numbers(shape, device) for shape in case.shapes]
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


def _numbers(shape: Shape, device: str) -> Tensor:
    """Return random numbers."""
    size = math.prod(shape)
    drawn = torch.randn(min(size, _DRAWN), device=device)
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


def cases(most_flops: float, most_bytes: float) -> Iterator[Case]:
    """Yield the operators and sizes to measure."""
    yield from _products(most_flops)
    yield Case(_by_transposed, ((8, 32768, 64), (8, 1024, 64)))  # as per-sample gradients of an embedding
    for case in itertools.chain(_convolutions(), _of_rows(), _of_elements()):
        if sum(4 * torch.Size(shape).numel() for shape in case.shapes) <= most_bytes:
            yield case


def _products(most_flops: float) -> Iterator[Case]:
    """Yield products in the layouts of forward and of both gradients."""
    sides = (64, 256, 1024, 4096)
    alone = (size for size in itertools.product((*sides, 16384), sides, sides) if math.prod(size) >= 2**18)
    inner = [(64, 64, 64), (256, 256, 64), (256, 64, 256), (64, 1024, 256), (256, 1024, 256), (768, 3072, 64)]
    inner += [(512, 4608, 4), (2048, 512, 4), (256, 2304, 16), (64, 576, 256)]  # gradients of convolutions
    batched = itertools.product(((2,), (8,), (32,), (96,)), inner)
    for b, (m, n, k) in itertools.chain((((), size) for size in alone), batched):
        if 2 * math.prod((*b, m, n, k)) <= most_flops and math.prod((*b, m, n)) <= 2**26:
            yield Case(_by_transposed, ((*b, m, k), (*b, n, k)))
            yield Case(lambda left, right: left.mT @ right, ((*b, k, m), (*b, k, n)))


def _by_transposed(left: Tensor, right: Tensor) -> Tensor:
    return left @ right.mT


def _convolutions() -> Iterator[Case]:
    """Yield the convolutions of residual networks and of patch embeddings."""
    stages = ((64, 56), (128, 28), (256, 14), (512, 7), (64, 16), (128, 8), (256, 4), (512, 2))
    kinds = [(3, 64, 7, 224, 2), (3, 768, 16, 224, 16), (256, 512, 1, 56, 2), (1024, 2048, 1, 14, 2)]
    kinds += [(width, width, 3, side, 1) for width, side in stages]
    kinds += [(width, 4 * width, 1, side, 1) for width, side in stages]
    kinds += [(4 * width, width, 1, side, 1) for width, side in stages]
    for batch, (inner, outer, filter_side, side, stride) in itertools.product((2, 8), kinds):
        padding = 0 if stride == filter_side else filter_side // 2
        work = partial(F.conv2d, stride=stride, padding=padding)
        shapes = (batch, inner, side, side), (outer, inner, filter_side, filter_side)
        yield from _with_gradients(work, *shapes)
        if batch == 8:
            for alone in range(2):
                yield Case(_gradient, shapes, partial(_prepared, work, _as_given, alone=alone))
        if outer == inner:
            unfold = partial(F.unfold, kernel_size=filter_side, padding=padding)
            yield from _with_gradients(unfold, (batch, inner, side, side))


def _of_rows() -> Iterator[Case]:
    for rows, columns in itertools.product((128, 1024, 8192, 65536), (64, 256, 1024, _VOCABULARY)):
        if rows * columns <= 2**26:
            yield from _with_gradients(partial(F.softmax, dim=-1), (rows, columns))
            yield from _with_gradients(partial(F.log_softmax, dim=-1), (rows, columns))
            if columns <= 1024:
                shapes = (rows, columns), (columns,), (columns,)
                yield from _with_gradients(lambda x, w, b: F.layer_norm(x, w.shape, w, b), *shapes)
    for batch, (channels, side) in itertools.product((2, 8), ((64, 56), (256, 56), (1024, 14), (2048, 7))):
        norm, weight = (lambda x, w, b: F.group_norm(x, 32, w, b)), (channels,)
        yield from _with_gradients(norm, (batch, channels, side, side), weight, weight)
    attend = partial(F.scaled_dot_product_attention, is_causal=True)
    for batch, heads, positions in itertools.product((2, 8), (4, 12), (64, 256, 512)):
        yield from _with_gradients(attend, *[(batch, heads, positions, 64)] * 3)


def _of_elements() -> Iterator[Case]:
    one_operand: tuple[Callable[[Tensor], Any], ...] = (
        *(torch.clone, torch.tanh, torch.exp, torch.linalg.vector_norm),
        *(partial(torch.mul, other=0.5), partial(torch.sum, dim=0), partial(torch.sum, dim=1)),
        *(torch.randn_like, partial(Tensor.mul_, other=0.5), partial(torch.sort, dim=-1)),
        lambda x: x.T.contiguous(),
        lambda x: torch.empty_like(x).bernoulli_(0.9),
    )
    for power in range(12, 29, 4):
        yield Case(torch.zeros_like, ((1,),), partial(lambda size, x: (x.expand(size),), 2**power))
    two_operands: list[Any] = [torch.add, torch.mul, Tensor.add_, Tensor.copy_]
    two_operands.append(lambda x, y: torch._foreach_add_([x], [y]))
    two_operands.append(lambda x, y: x.addcdiv_(x, y, value=-1e-3))
    for power in range(6, 14):
        square = (2**power, 2**power)
        yield from (Case(work, (square,)) for work in one_operand)
        yield from (Case(work, (square, square)) for work in two_operands)
        for work in (F.gelu, F.relu):
            yield from _with_gradients(work, square)
        table, tokens = (_VOCABULARY, min(1024, 2**power)), (2**power,)
        yield Case(F.embedding, (tokens, table), _with_ids)
        yield Case(_gradient, (tokens, table), partial(_prepared, F.embedding, _with_ids))


def _with_ids(numbers: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    return (numbers.abs() * _VOCABULARY).long() % _VOCABULARY, table


def _with_gradients(work: Callable[..., Tensor], *shapes: Shape) -> Iterator[Case]:
    """Yield an operator, and its gradients by all of its tensors."""
    yield Case(work, shapes)
    yield Case(_gradient, shapes, partial(_prepared, work, _as_given))


def _as_given(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tensors


def _prepared(
    work: Callable[..., Tensor],
    prepare: Callable[..., tuple[Tensor, ...]],
    *tensors: Tensor,
    alone: int | None = None,
) -> tuple[Any, ...]:
    """Run forward; return its output, a gradient of it, and the inputs with gradients: all, or one alone."""
    inputs = prepare(*tensors)
    chosen = inputs if alone is None else inputs[alone : alone + 1]
    floating = [each.requires_grad_() for each in chosen if each.is_floating_point()]
    output = work(*inputs)
    return output, torch.ones_like(output), floating


def _gradient(output: Tensor, gradient: Tensor, inputs: list[Tensor]) -> Any:
    return torch.autograd.grad(output, inputs, gradient, retain_graph=True)
