import dataclasses

import pytest
from example_config import changed, experiment
from example_runs import known

from dpprof.config.devices import BLOCK_BYTES, DEVICES
from dpprof.config.experiment import ExperimentConfig
from dpprof.record.figures import capacity
from dpprof.record.figures.capacity import Bound, TimeRange, round_batch
from dpprof.record.ledger import (
    CollectiveRow,
    Doubt,
    LedgerResult,
    PhasePeak,
    PhaseTime,
    Segments,
    TrafficRow,
)

MIB, GIB = 2**20, 2**30
ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
ON_H100 = experiment(passes="estimate", target="H100", batch_size=3, seq_len=130, hidden_dim=64)
ON_CPU = experiment(passes="estimate", device="cpu")


def resolved(config: ExperimentConfig) -> ExperimentConfig:
    return config.resolve(cuda_available=False)


def ledger(*rows: TrafficRow, peak: int = 100 * MIB) -> LedgerResult:
    phases = dict.fromkeys(row.phase for row in rows if row.phase)
    return LedgerResult(
        peak=peak,
        peak_phase="forward",
        at_peak={},
        phase_peak={phase: PhasePeak(peak, {}) for phase in phases},
        after_step={},
        traffic=list(rows),
        step_s=1,
        num_storages=1,
        from_allocator={"block_rounding": 7 * BLOCK_BYTES, "cublas_workspace": 64 * MIB},
    )


def row(phase: str, name: str = "aten::mm", moved: int = 0, flops: int = 0) -> TrafficRow:
    return TrafficRow(name, "matrix_product", phase, 1, moved, 0, flops)


def test_on_a_gpu_every_addition_has_a_name() -> None:
    config, found = resolved(ON_H100), ledger(row("forward"))
    assert capacity.needed_bytes(config, found) == (100 + 64 + 512) * MIB + 3584
    found.segments = Segments(reserved=300 * MIB, least=190 * MIB, expandable=180 * MIB)
    assert capacity.needed_bytes(config, found) == (190 + 512) * MIB
    assert capacity.saved_by_expandable(found) == 10 * MIB
    on_cpu = resolved(ON_CPU)
    found.from_allocator, found.segments = {}, None
    assert (capacity.needed_bytes(on_cpu, found), capacity.capacity_bytes(on_cpu)) == (100 * MIB, None)


def test_a_memory_given_goes_before_the_targets() -> None:
    config = resolved(ON_H100)
    assert capacity.capacity_bytes(config) == round(DEVICES["H100"].memory_gib * GIB)
    assert capacity.capacity_bytes(changed(config, device_memory_gib=24.0)) == 24 * GIB


def test_the_floor_is_the_longer_of_bytes_and_flops_in_each_phase() -> None:
    found = ledger(
        row("forward", moved=3350 * 10**6),  # 1 ms at 3350 GB/s
        row("forward", flops=67 * 10**8),  # 0.1 ms at 67 TFLOP/s
        row("backward", moved=3350 * 10**5, flops=67 * 10**10),  # 0.1 ms and 10 ms
    )
    assert capacity.floor_s(resolved(ON_H100), found) == pytest.approx({"forward": 1e-3, "backward": 1e-2})
    in_bf16 = dataclasses.replace(resolved(ON_H100), precision="bf16")
    assert capacity.floor_s(in_bf16, found)["backward"] == pytest.approx(67e10 / 989e12)
    for weights, tflops in (("bf16", 989), ("bf16 and fp32", 989), ("fp16", 989), ("fp32", 67), ("fp64", 67)):
        floor = capacity.floor_s(resolved(ON_H100), found, weights)["backward"]
        assert floor == pytest.approx(67e10 / (tflops * 1e12)), weights


def test_what_a_cache_keeps_from_memory_takes_no_time_and_fp32_takes_its_own() -> None:
    kept, products = row("forward", moved=3350 * 10**6), row("backward", flops=2 * 67 * 10**10)
    kept.cached, products.fp32_flops = 3350 * 10**6 * 3 // 4, 67 * 10**10
    in_bf16 = dataclasses.replace(resolved(ON_H100), precision="bf16")
    assert capacity.floor_s(in_bf16, ledger(kept, products)) == pytest.approx(
        {"forward": 2.5e-4, "backward": 1e-2 + 67e10 / 989e12}
    )


def test_without_a_rate_only_the_bytes_count_and_without_a_target_nothing() -> None:
    found = ledger(row("forward", moved=320 * 10**6, flops=10**15))
    on_t4 = changed(resolved(ON_H100), target="T4", precision="bf16")
    assert capacity.floor_s(on_t4, found) == pytest.approx({"forward": 1e-3})
    assert capacity.floor_s(changed(on_t4, target="none"), found) == {}


@pytest.mark.parametrize(
    ("name", "precision", "words"),
    [
        ("aten::unique_dim", "fp32", ["upper bound", "foreach", "fragmentation"]),
        (ATTENTION, "fp32", ["attention", "foreach", "fragmentation"]),
        (ATTENTION, "bf16", ["attention", "foreach", "fragmentation", "autocast"]),
        ("aten::embedding_dense_backward", "fp32", ["foreach", "fragmentation", "sort"]),
    ],
)
def test_what_an_estimate_rests_on_is_told(name: str, precision: str, words: list[str]) -> None:
    config = dataclasses.replace(resolved(ON_H100), precision=precision)
    found = capacity.assumptions(config, ledger(row("forward", name)))
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))
    (on_cpu,) = capacity.assumptions(resolved(ON_CPU), ledger(row("forward", ATTENTION)))
    assert "in one run of its own on this machine" in on_cpu


@pytest.mark.parametrize(
    ("limit_mib", "doubts", "expected"),
    [
        (100, [], True),
        (99, [], False),
        (150, [30, 20], True),
        (149, [30, 20], None),
        (100, [30, 20], None),
        (99, [30, 20], False),
        (10_000, [30, None], None),
        (99, [None], False),
    ],
)
def test_it_fits_only_with_room_for_what_is_in_doubt(
    limit_mib: int, doubts: list[int | None], expected: bool | None
) -> None:
    config = changed(resolved(ON_CPU), device_memory_gib=limit_mib / 1024)
    found = ledger(row("forward"))
    found.from_allocator = {}
    found.doubts = [Doubt(str(i), "", None if mib is None else mib * MIB) for i, mib in enumerate(doubts)]
    assert capacity.fits(config, found) is expected
    assert capacity.fits(resolved(ON_CPU), found) is None, "held against nothing"


def test_the_time_of_a_logical_batch_repeats_what_every_physical_batch_has() -> None:
    """Two physical batches of 3 samples were estimated; 12 samples take four."""
    config = dataclasses.replace(resolved(ON_H100), accumulation_steps=2)
    found = ledger(taking(2, "forward"), taking(4, "backward"), taking(5, "noise"))
    for samples, seconds in ((6, 2 + 4 + 5), (12, 4 + 8 + 5), (3, 1 + 2 + 5)):
        time = capacity.logical_predicted_s(config, found, samples)
        assert time == pytest.approx((seconds, seconds / 2, 3 * seconds))
    assert capacity.logical_predicted_s(config, ledger(row("forward", moved=5)), 12) is None


def taking(seconds: float, phase: str, host_s: float = 0.0) -> TrafficRow:
    """An operator that is predicted to take so long, half of it at least and three times that at most."""
    found = row(phase)
    found.predicted_s, found.least_s, found.most_s = seconds, seconds / 2, 3 * seconds
    found.host_s = host_s
    return found


def test_a_phase_takes_what_the_clock_of_its_step_found_and_what_ranks_send() -> None:
    found = ledger(taking(2, "forward"), taking(1, "noise"))
    found.phase_s = {"forward": PhaseTime(3, 2, 6), "noise": PhaseTime(5, 1, 9)}
    time = capacity.predicted_s(resolved(ON_H100), found)
    assert time == {"forward": (3, 2, 6), "noise": (5, 1, 9)}
    found.collectives = [CollectiveRow("all_reduce", "noise", calls=1, predicted_s=0.5)]
    assert capacity.predicted_s(resolved(ON_H100), found)["noise"] == (5.5, 1.5, 9.5)


def test_a_range_holds_its_time_where_a_phase_waits_less_in_a_slower_step() -> None:
    found = ledger(taking(1, "noise"))
    found.phase_s = {"noise": PhaseTime(0.3, 1.5, 0.2)}
    assert capacity.predicted_s(resolved(ON_H100), found)["noise"] == (0.3, 0.2, 1.5)


def test_a_step_is_bound_by_what_takes_its_time() -> None:
    multiplied, added = taking(2, "forward"), taking(1, "noise")
    multiplied.arithmetic_s = 1.5
    found = ledger(multiplied, added, taking(7, "outside of phases"))
    found.traffic[-1].phase = None
    found.phase_s = {
        "forward": PhaseTime(2, 1, 3, operators=10),
        "noise": PhaseTime(6, 4, 9, operators=1_200),
    }
    step = TimeRange(8, 5, 12)
    assert known(Bound.of(found, step))[:4] == (1.5 / 8, 1.5 / 8, 5 / 8, 1_210)
    assert known(Bound.of(found, step)).words == (
        "is launch-bound: the GPU waits 62 % of it for the host to issue 1,210 operators"
    )
    assert known(Bound.of(found, TimeRange(20, 5, 30)))[:3] == (1.5 / 20, 1.5 / 20, 5 / 20), "ranks send"
    found.phase_s["noise"].seconds = 2
    assert known(Bound.of(found, TimeRange(4, 2, 6))).words == ""


def test_a_processor_and_an_older_ledger_tell_of_no_bound() -> None:
    found = ledger(taking(2, "forward", host_s=4))
    assert Bound.of(found, None) is None
    found.phase_s = {"forward": PhaseTime(2, 1, 3)}
    assert Bound.of(found, TimeRange(2, 1, 3)) is None, "no operator was issued"


# In folders of 0.3.
def test_a_phase_ends_when_its_host_has_issued_it() -> None:
    found = ledger(taking(2, "forward"), taking(1, "noise", host_s=4))
    time = capacity.predicted_s(resolved(ON_H100), found)
    assert time == {"forward": (2, 1, 6), "noise": (2, 1, 3)}, "the host may be twice or half as fast"
    assert capacity.step_of(time) == (4, 2, 9)


def test_a_host_runs_ahead_of_the_device() -> None:
    found = ledger(taking(2, "forward"), taking(1, "noise", host_s=2))
    assert capacity.predicted_s(resolved(ON_H100), found)["noise"].seconds == 1


def test_what_ranks_send_overlaps_with_forward_and_backward_but_for_the_last() -> None:
    config = changed(resolved(ON_H100), parallel="ddp", world_size=2)
    found = ledger(taking(2, "backward"), taking(1, "noise"))
    found.collectives = [
        CollectiveRow("all_reduce", "backward", calls=4, predicted_s=1.0),
        CollectiveRow("all_reduce", "noise", calls=1, predicted_s=0.5),
    ]
    time = capacity.predicted_s(config, found)
    assert time["backward"].seconds == 2.25
    assert time["noise"].seconds == 1.5
    on_cpu = changed(config, device="cpu", target="none")
    assert capacity.predicted_s(on_cpu, found)["backward"].seconds == 3, "ranks share its cores"
    found.collectives[0].predicted_s = 8.0
    assert capacity.predicted_s(config, found)["backward"].seconds == 8.0
    found.collectives = [CollectiveRow("broadcast", "noise", 1, 0, 225 * 10**9, predicted_s=None)]
    assert capacity.predicted_s(config, found)["noise"].seconds == 1.5, "at the link's rate, if not measured"
    slow = changed(config, link_gb_per_s=22.5)
    found.collectives[0].predicted_s = 0.5
    assert capacity.predicted_s(slow, found)["noise"].seconds == 11, "at the rate that was given"


def test_a_round_batch_is_a_little_smaller_than_the_largest() -> None:
    found = {largest: round_batch(largest) for largest in (0, 15, 23, 75, 151, 4228)}
    assert found == {0: 0, 15: 15, 23: 22, 75: 72, 151: 144, 4228: 4224}
    assert all(largest - rounded <= largest / 8 for largest, rounded in found.items())
