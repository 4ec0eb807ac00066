"""One rank of many, alone: what it holds and what it sends, on real tensors and on fake ones."""

import dataclasses
import gc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from covering import sampled
from example_workloads import mlp
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment, to_flat
from dpprof.measure.observe import Observer
from dpprof.measure.passes import memory
from dpprof.measure.passes.estimate_ledger import CpuLedger
from dpprof.measure.passes.ledger import Ledger, keep_ledger, warmup_steps
from dpprof.measure.passes.subject import Subject
from dpprof.measure.ranks import one_rank_of_many
from dpprof.measure.trainers.buckets import buckets
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.training import Training
from dpprof.measure.workloads.workload import build_workload
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Memory, Record
from dpprof.vocabulary.parallel import ALL_GATHER, ALL_REDUCE, DDP, FSDP2, NONE, REDUCE_SCATTER
from dpprof.vocabulary.trainers import TRAINERS

WAYS = [(name, way) for name, info in TRAINERS.items() for way in info.parallel if way != NONE]
# Numbers that an operator makes for itself, which the ledger does not see.
SCALARS = 12
# How many times the bytes of all parameters a step sends, as payloads of each kind.
PAYLOADS = {
    ("StandardTrainer", DDP): {ALL_REDUCE: 1},
    ("DPSGDTrainer", DDP): {ALL_REDUCE: 1},
    ("DPGhostClippingTrainer", DDP): {ALL_REDUCE: 1},
    ("DPFastGradientClippingTrainer", DDP): {ALL_REDUCE: 1},
    ("DPBookKeepingTrainer", DDP): {REDUCE_SCATTER: 1, ALL_GATHER: 1},
    ("DPMixedGhostTrainer", DDP): {REDUCE_SCATTER: 1, ALL_GATHER: 1},
    ("StandardTrainer", FSDP2): {ALL_GATHER: 2, REDUCE_SCATTER: 1},
    ("DPGhostClippingTrainer", FSDP2): {ALL_GATHER: 3, REDUCE_SCATTER: 2},
    ("DPFastGradientClippingTrainer", FSDP2): {ALL_GATHER: 3, REDUCE_SCATTER: 2},
    ("DPBookKeepingTrainer", FSDP2): {ALL_GATHER: 2, REDUCE_SCATTER: 1},
    ("DPMixedGhostTrainer", FSDP2): {ALL_GATHER: 3, REDUCE_SCATTER: 1},
}


def config_of(trainer: str, way: str, world_size: int, **settings: Any) -> ExperimentConfig:
    values = {"trainer": trainer, "parallel": way, "world_size": world_size, "device": "cpu"}
    sizes = {"model_size": "tiny", "num_layers": 1, "vocab_size": 64, "batch_size": 2, "seq_len": 16}
    return parse_experiment(values | sizes | settings, EstimatingConfig).resolve(cuda_available=False)


def ledger_of(config: ExperimentConfig, *, is_fake: bool, rank: int = 0) -> LedgerResult:
    warm = warmup_steps(config)
    with one_rank_of_many(config, rank):
        if not is_fake:
            return keep_ledger(lambda: Training(config), Ledger("cpu"), 2, warmup_steps=warm).result
        with fake_tensors(load_trainer(config.trainer)):
            return keep_ledger(lambda: Training(config), CpuLedger(), 1, warmup_steps=warm).result


# Where ranks agree for each batch that none refuses it: a count of 8 bytes.
SCALARS_AGREED = 8
AGREEING = [(trainer, FSDP2) for trainer in ("DPBookKeepingTrainer", "DPMixedGhostTrainer")]


def bytes_by_phase(ledger: LedgerResult) -> dict[str | None, int]:
    return {
        phase: moved.read + moved.written for phase, moved in ledger.moved(by=lambda row: row.phase).items()
    }


def peak_of(config: ExperimentConfig, rank: int) -> int:
    return ledger_of(config, is_fake=True, rank=rank).peak


@cache
def fake(trainer: str, way: str, world_size: int) -> LedgerResult:
    return ledger_of(config_of(trainer, way, world_size), is_fake=True)


def allocated(config: ExperimentConfig) -> Memory:
    """What torch's allocator tells of the same rank."""
    gc.collect()  # what is freed while it records counts
    record = Record(to_flat(config), {})
    with one_rank_of_many(config, 0):
        memory.run(Subject(config, RunFolder(Path("unused")), record))
    return record.memory


@pytest.mark.parametrize(("trainer", "way"), WAYS)
def test_an_estimate_and_the_ledger_equal_the_allocator_to_the_byte(trainer: str, way: str) -> None:
    config = config_of(trainer, way, 2)
    truth, seen, estimated = allocated(config), ledger_of(config, is_fake=False), fake(trainer, way, 2)
    assert estimated.peak == truth.peak_allocated
    assert truth.phase_peak.keys() == estimated.phase_peak.keys() == seen.phase_peak.keys()
    for phase, num_bytes in truth.phase_peak.items():
        for ledger in (seen, estimated):
            assert 0 <= num_bytes - ledger.phase_peak[phase].num_bytes <= SCALARS
    assert seen.collectives == estimated.collectives


@pytest.mark.parametrize(
    ("trainer", "way", "world_size"),
    [*((*one, 2) for one in WAYS), *sampled([(*one, 8) for one in WAYS], [(*one, 8) for one in WAYS[::3]])],
)
def test_what_a_rank_sends_follows_from_the_parameters(trainer: str, way: str, world_size: int) -> None:
    config = config_of(trainer, way, world_size)
    num_bytes = 4 * sum(p.numel() for p in build_workload(config).model.parameters())
    found: dict[str, list[int]] = {}
    for row in fake(trainer, way, world_size).collectives:
        if row.payload == SCALARS_AGREED and (trainer, way) in AGREEING:
            continue
        totals = found.setdefault(row.name, [0, 0])
        totals[0] += row.payload
        totals[1] += row.sent
    expected = PAYLOADS[trainer, way]
    assert {name: payload for name, (payload, _) in found.items()} == {
        name: times * num_bytes for name, times in expected.items()
    }
    share = (world_size - 1) / world_size
    for name, (payload, sent) in found.items():
        assert sent == pytest.approx((2 if name == ALL_REDUCE else 1) * share * payload, abs=world_size)


def test_the_hook_of_a_fake_group_moves_the_bytes_that_ddp_moves() -> None:
    config = config_of("StandardTrainer", DDP, 2)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        real = keep_ledger(lambda: Training(config), Ledger("cpu"), 2, warmup_steps=2).result
    finally:
        dist.destroy_process_group()
    seen = ledger_of(config, is_fake=False)
    assert bytes_by_phase(real) == bytes_by_phase(seen) == bytes_by_phase(fake("StandardTrainer", DDP, 2))


def wide_head(config: ExperimentConfig) -> tuple[Any, ...]:
    """The last layer has 1.3 MB, more than DDP's first bucket, and its gradient is ready first."""
    _, batches, loss = mlp(config)
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10_000, bias=False)), batches, loss


def test_an_estimate_has_the_buckets_that_ddp_makes_by_what_is_ready_first() -> None:
    own = {"workload": "test_one_of_many:wide_head", "model_size": "auto", "vocab_size": 0}
    config = config_of("StandardTrainer", DDP, 2, **own)
    seen, estimated = (ledger_of(config, is_fake=is_fake) for is_fake in (False, True))
    assert [(row.name, row.calls) for row in seen.collectives] == [(ALL_REDUCE, 2)]
    assert estimated.collectives == seen.collectives
    assert estimated.peak == seen.peak


def test_a_gradient_of_no_numbers_is_in_no_bucket() -> None:
    gradients = [torch.empty(0), torch.arange(5.0), torch.empty(0)]
    with one_rank_of_many(config_of("DPBookKeepingTrainer", DDP, 2), 0):
        (bucket,) = buckets(gradients, 0, 2)
        (mean,) = bucket.reduce_scattered()
        bucket.all_gather()
    assert len(mean) == 3
    assert not list(buckets([torch.empty(0)], 0, 2))


def test_ranks_are_dealt_the_batches_that_one_process_takes() -> None:
    config = config_of("StandardTrainer", DDP, 3)

    def seen(config: ExperimentConfig, rank: int, num_steps: int) -> list[int]:
        sums: list[int] = []
        with one_rank_of_many(config, rank):
            training = Training(config)
            training.model.register_forward_pre_hook(lambda _, args: sums.append(int(args[0].sum())))
            training.run(num_steps, Observer())
        return sums

    whole = seen(dataclasses.replace(config, parallel=NONE, world_size=1), 0, 6)
    assert len(set(whole)) == 6
    assert [seen(config, rank, 2) for rank in range(3)] == [whole[rank::3] for rank in range(3)]


@pytest.mark.parametrize(("trainer", "way"), sampled(WAYS, [WAYS[0], *WAYS[1::3]]))
def test_no_rank_holds_more_than_the_first(trainer: str, way: str) -> None:
    """With three ranks shards are uneven, and the last one's are smaller."""
    config, peaks = config_of(trainer, way, 3), []
    for rank in range(3):
        if way != FSDP2:
            peaks.append(peak_of(config, rank))
            continue
        with ProcessPoolExecutor(1, get_context("fork")) as process:  # torch remembers the shards of its rank
            peaks.append(process.submit(peak_of, config, rank).result())
    assert max(peaks) == peaks[0]
    assert way == FSDP2 or way in load_trainer(trainer).rank_0_differs or len(set(peaks)) == 1


def test_opacus_draws_the_whole_models_noise_on_every_rank_of_shards_and_bk_its_share() -> None:
    def written(trainer: str) -> int:
        moved = fake(trainer, FSDP2, 8).moved(by=lambda row: (row.name, row.phase))
        return sum(m.written for (name, phase), m in moved.items() if phase == "noise" and "normal" in name)

    assert written("DPGhostClippingTrainer") == 8 * written("DPBookKeepingTrainer")


# Of the calls below, however torch is asked for a collective: its payload is the whole tensor.
WORLD_SIZE = 4
NUM_BYTES = 80  # of the tensor of one rank


def name() -> str:
    return dist.distributed_c10d._get_default_group().group_name


def functional(operator: str, *args: Any) -> None:
    made = getattr(torch.ops._c10d_functional, operator)(*args, name())
    for tensor in made if isinstance(made, list) else [made]:
        torch.ops._c10d_functional.wait_tensor(tensor)


def parts() -> list[Tensor]:
    return [torch.zeros(20) for _ in range(WORLD_SIZE)]


ONE, WHOLE = torch.zeros(20), torch.zeros(20 * WORLD_SIZE)
CASES: dict[str, tuple[Callable[[], object], str, int]] = {
    "list": (lambda: dist.all_gather(parts(), ONE), ALL_GATHER, WORLD_SIZE),
    "base": (lambda: dist.all_gather_into_tensor(WHOLE, ONE), ALL_GATHER, WORLD_SIZE),
    "functional": (lambda: functional("all_gather_into_tensor", ONE, WORLD_SIZE), ALL_GATHER, WORLD_SIZE),
    "coalesced": (
        lambda: functional("all_gather_into_tensor_coalesced", [ONE, ONE], WORLD_SIZE),
        ALL_GATHER,
        2 * WORLD_SIZE,
    ),
    "scattered list": (lambda: dist.reduce_scatter(ONE, parts()), REDUCE_SCATTER, WORLD_SIZE),
    "scattered": (
        lambda: functional("reduce_scatter_tensor", WHOLE, "sum", WORLD_SIZE),
        REDUCE_SCATTER,
        WORLD_SIZE,
    ),
    "reduced": (lambda: dist.all_reduce(ONE), ALL_REDUCE, 1),
    "reduced in place": (lambda: functional("all_reduce_", ONE, "sum"), ALL_REDUCE, 1),
    "reduced together": (lambda: functional("all_reduce_coalesced", [ONE, ONE], "sum"), ALL_REDUCE, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_the_payload_is_the_whole_tensor(case: str) -> None:
    call, collective, times = CASES[case]
    with one_rank_of_many(config_of("StandardTrainer", DDP, WORLD_SIZE), 0), Ledger("cpu") as ledger:
        with ledger.counting():
            call()
        (row,) = ledger.take_collectives()
    assert (row.name, row.calls, row.payload) == (collective, 1, times * NUM_BYTES)
