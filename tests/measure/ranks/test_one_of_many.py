"""One rank of many, alone: what it holds, what it sends, and its time in a group that sends nothing."""

import dataclasses
import gc
from collections.abc import Callable, Iterator
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
from tiny_ledgers import BUILT_IN
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.utils._python_dispatch import TorchDispatchMode

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment, to_flat
from dpprof.config.measuring import MeasuringConfig
from dpprof.drive.launch.ranks import LOOPBACK, free_port
from dpprof.measure.observe import Observer
from dpprof.measure.passes import clean, memory
from dpprof.measure.passes.estimate_ledger import CpuLedger
from dpprof.measure.passes.ledger import Ledger, keep_ledger, warmup_steps
from dpprof.measure.passes.subject import Subject
from dpprof.measure.rank import Rank
from dpprof.measure.ranks import Ranks, one_rank_of_many
from dpprof.measure.silent_group import SILENT
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
ALL_REDUCED, SCATTERED_AND_GATHERED = {ALL_REDUCE: 1}, {REDUCE_SCATTER: 1, ALL_GATHER: 1}
GATHERED_IN_EACH_PASS = {ALL_GATHER: 3, REDUCE_SCATTER: 2}
PAYLOADS = {
    **{(trainer, DDP): ALL_REDUCED for trainer in BUILT_IN},
    ("DPBookKeepingTrainer", DDP): SCATTERED_AND_GATHERED,
    ("DPMixedGhostTrainer", DDP): SCATTERED_AND_GATHERED,
    ("StandardTrainer", FSDP2): {ALL_GATHER: 2, REDUCE_SCATTER: 1},
    ("DPGhostClippingTrainer", FSDP2): GATHERED_IN_EACH_PASS,
    ("DPFastGradientClippingTrainer", FSDP2): GATHERED_IN_EACH_PASS,
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
    by_phase = ledger.moved(by=lambda row: row.phase)
    return {phase: moved.read + moved.written for phase, moved in by_phase.items()}


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
    expected = {name: times * num_bytes for name, times in PAYLOADS[trainer, way].items()}
    assert {name: payload for name, (payload, _) in found.items()} == expected
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
TENSOR, COALESCED = "all_gather_into_tensor", "all_gather_into_tensor_coalesced"
CASES: dict[str, tuple[Callable[[], object], str, int]] = {
    "list": (lambda: dist.all_gather(parts(), ONE), ALL_GATHER, WORLD_SIZE),
    "base": (lambda: dist.all_gather_into_tensor(WHOLE, ONE), ALL_GATHER, WORLD_SIZE),
    "functional": (lambda: functional(TENSOR, ONE, WORLD_SIZE), ALL_GATHER, WORLD_SIZE),
    "coalesced": (lambda: functional(COALESCED, [ONE, ONE], WORLD_SIZE), ALL_GATHER, 2 * WORLD_SIZE),
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


# The alone pass: a process group that sends nothing, and whose time does not grow with the ranks.
MANY, RANK = 64, 3


class Copies(TorchDispatchMode):
    """Counts the kernels that write tensors."""

    num = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.num += func._schema.is_mutable
        return func(*args, **(kwargs or {}))


@pytest.fixture
def silent() -> Iterator[None]:
    with one_rank_of_many(config_of("StandardTrainer", DDP, MANY), RANK, SILENT):
        yield


@pytest.mark.parametrize(("trainer", "way"), WAYS)
def test_every_trainer_runs_its_alone_pass_on_it(trainer: str, way: str) -> None:
    how = MeasuringConfig(warmup_steps=1, measured_steps=3)
    config = dataclasses.replace(config_of(trainer, way, 4), how=how)
    subject = Subject(config, RunFolder(Path("unused")), Record(to_flat(config), {}))
    with one_rank_of_many(config, 1, SILENT):
        clean.run_alone(subject)
    assert len(subject.record.alone_step_s) == 3


@pytest.mark.usefixtures("silent")
def test_gathering_is_one_copy_whatever_the_ranks() -> None:
    own, whole = torch.arange(6.0).view(2, 3), torch.zeros(2 * MANY, 3)
    with Copies() as copies:
        dist.all_gather_into_tensor(whole, own)
    assert copies.num == 1
    assert torch.equal(whole, own.repeat(MANY, 1))


@pytest.mark.usefixtures("silent")
def test_gathering_around_ones_own_part_leaves_it() -> None:
    whole = torch.zeros(2 * MANY)
    own = whole[2 * RANK : 2 * RANK + 2]
    own += 1
    with Copies() as copies:
        dist.all_gather_into_tensor(whole, own)
    assert copies.num == 2
    assert whole.eq(1).all()


@pytest.mark.usefixtures("silent")
def test_scattering_takes_ones_own_part_and_reducing_takes_nothing() -> None:
    whole, mine = torch.arange(2.0 * MANY), torch.zeros(2)
    with Copies() as copies:
        dist.reduce_scatter_tensor(mine, whole)
    assert (copies.num, mine.tolist()) == (1, [2 * RANK, 2 * RANK + 1])
    parts = [torch.zeros(2) for _ in range(MANY)]
    with Copies() as copies:
        dist.all_gather(parts, mine)
        dist.all_reduce(mine)
        dist.broadcast(mine, 0)
        dist.barrier()
    assert copies.num == 1
    assert all(torch.equal(part, mine) for part in parts)


def test_ranks_are_timed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": LOOPBACK}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_PORT", str(free_port(LOOPBACK)))
    ranks = Ranks(config_of("StandardTrainer", DDP, 1), Rank(0, 1, 0, 1))
    with ranks.in_turn():
        assert dist.get_backend() == SILENT
