"""The roofline's points, ceilings and doubts."""

import dataclasses
from typing import Any

import pytest
from example_roofline import CEILINGS, COUNTERS, LEDGER, cell, comparison
from example_runs import known

from dpprof.findings.roofline import (
    Ceiling,
    Point,
    Roof,
    Roofline,
    RooflineRow,
    Section,
    compute,
    doubts,
    points,
    roofs,
)
from dpprof.pages.reports.roofline import PHASE_COLUMNS

MIB = 2**20
HIGHER = {"ceilings/copy_gib_per_s": 40.0, "ceilings/matmul_tflop_per_s": 0.4}


def cells(row: RooflineRow) -> list[str]:
    """The texts of a row of the page."""
    return [str(value(row)) for _, _, value in PHASE_COLUMNS]


def points_of(figures: dict[str, float]) -> list[Point]:
    return points(cell(figures))


def test_hardware_counters_replace_bytes_and_time_together() -> None:
    assert points_of(LEDGER | COUNTERS) == [
        Point("forward", "counters", 16 * MIB, 0.002, 2**30),
        Point("noise", "ledger", 32 * MIB, 0.008, 0),
        Point("step", "counters", 24 * MIB, 0.004, 2**30),
    ]
    assert points_of(COUNTERS) == [
        Point("forward", "counters", 16 * MIB, 0.002, None),
        Point("step", "counters", 24 * MIB, 0.004, None),
    ]
    without_dram = {name: value for name, value in COUNTERS.items() if "dram_written" not in name}
    assert points_of(LEDGER | without_dram) == points_of(LEDGER)
    assert points_of(without_dram) == []


def test_without_a_time_there_are_no_rates() -> None:
    untimed = {name: value for name, value in LEDGER.items() if not name.startswith("latency/")}
    for point in points_of(untimed):
        assert (point.seconds, point.flop_per_s, point.bytes_per_s) == (None, None, None)
    assert points_of(untimed)[0].intensity == 16
    assert points_of(CEILINGS | {"memory/at_peak/noise_mib": 1.0, "profiler/copy/calls": 1.0}) == []


def test_poisson_sampled_batches_have_no_rates_from_the_ledger() -> None:
    """Its bytes are those of the largest batch, and the time is that of all sizes."""
    assert all(point.seconds is None for point in points_of(LEDGER | {"step/mean_batch": 3.5}))
    assert all(point.seconds for point in points_of(COUNTERS | {"step/mean_batch": 3.5}))


def test_ceilings_meet_at_the_ridge() -> None:
    (roof,) = roofs([cell(CEILINGS)]).values()
    assert roof.ridge == 0.5e12 / (32 * 2**30)
    assert [roof.binds(x) for x in (1.0, 14.0, 15.0, None)] == ["copy", "copy", "matmul", None]
    (alone,) = roofs([cell(LEDGER)], copy_bytes_per_s=1.0).values()
    assert (alone.ridge, alone.binds(1.0)) == (None, None)


def test_precisions_share_their_devices_copy_and_devices_share_nothing() -> None:
    found = roofs([cell(CEILINGS), cell(HIGHER, precision="bf16")])
    one, other = found["a CPU", "fp32"], found["a CPU", "bf16"]
    assert one.copy == other.copy == Ceiling(40 * 2**30, 32 * 2**30, 2)
    assert (one.matmul, other.matmul) == (Ceiling(0.5e12, 0.5e12, 1), Ceiling(0.4e12, 0.4e12, 1))
    gpu = cell(LEDGER, device="cuda", environment={"cpu": "a CPU", "gpu": "a GPU"})
    found = roofs([cell(CEILINGS), gpu, cell(CEILINGS, environment={})])
    assert list(found) == [("a CPU", "fp32"), ("a GPU", "fp32"), ("cpu", "fp32")]
    assert found["a GPU", "fp32"] == Roof("a GPU", "fp32", None, None)


def test_weights_of_other_types_have_roofs_of_their_own() -> None:
    short, wide = cell(HIGHER), cell(CEILINGS)
    short.runs[:] = [dataclasses.replace(run, weights_dtype="bf16") for run in short.runs]
    found = roofs([wide, short])
    assert list(found) == [("a CPU", "fp32"), ("a CPU", "fp32, weights in bf16")]
    assert [known(roof.matmul).per_s for roof in found.values()] == [0.5e12, 0.4e12]


def test_given_ceilings_count_before_measured_ones() -> None:
    (roof,) = roofs([cell(CEILINGS)], matmul_flop_per_s=2e12).values()
    assert roof.matmul == Ceiling(2e12, 2e12, 0)
    assert roof.copy == Ceiling(32 * 2**30, 32 * 2**30, 1)


def rooflined(*figures: dict[str, float], **given: float) -> Roofline:
    return compute(comparison(cell(*figures)), **given)


def shares(section: Section) -> dict[str, Any]:
    return {row.point.phase: (row.copy_pct, row.matmul_pct, row.binds) for row in section.rows}


def test_rows_hold_what_share_of_the_ceilings_they_reach() -> None:
    found = rooflined(LEDGER | CEILINGS)
    (section,) = found.sections
    assert section.label == "StandardTrainer, tiny, batch 4, sequence 512"
    assert shares(section) == {
        # 64 MiB in 4 ms are 15.625 GiB/s of 32, 2**30 FLOP in 4 ms 0.268 TFLOP/s of 0.5.
        "forward": (pytest.approx(100 * 15.625 / 32), pytest.approx(100 * 2**30 / 0.004 / 0.5e12), "matmul"),
        "noise": (pytest.approx(100 * 3.90625 / 32), None, "copy"),
        "step": (pytest.approx(100 * 7.8125 / 32), pytest.approx(100 * 2**30 / 0.012 / 0.5e12), "copy"),
    }
    assert {row.point.source for row in section.rows} == {"ledger"}
    assert (found.left_out, doubts(found)) == ([], [])
    bare = rooflined(LEDGER)
    assert set(shares(bare.sections[0]).values()) == {(None, None, None)}
    assert bare.roofs == [Roof("a CPU", "fp32", None, None)]


def test_the_figures_are_those_of_the_table() -> None:
    (section,) = rooflined(LEDGER | COUNTERS | CEILINGS).sections
    assert [" | ".join(cells(row)) for row in section.rows] == [
        "forward | 2.00 | 16.0 | 1.07 | 64.0 | 536.9 | 107.4 | 7.81 | 24.4 | matmul | DRAM, kernels",
        "noise | 8.00 | 32.0 |  |  |  |  | 3.91 | 12.2 | copy | ledger, wall",
        "step | 4.00 | 24.0 | 1.07 | 42.7 | 268.4 | 53.7 | 5.86 | 18.3 | matmul | DRAM, kernels",
    ]
    (section,) = rooflined(LEDGER | {"flops/noise": 2.0**20}).sections
    assert cells(section.rows[1])[3:6] == ["0.001", "0.031", "0.13"]
    (section,) = rooflined(LEDGER | CEILINGS | {"io/noise/written_mib": 0.0}).sections
    assert cells(section.rows[1])[2:] == ["0.00", "", "", "", "", "0.00", "0.00", "", "ledger, wall"]


def test_several_runs_of_a_cell_are_one_section_of_medians() -> None:
    slower = {name: 3 * value if name.startswith("latency/") else value for name, value in LEDGER.items()}
    (section,) = rooflined(LEDGER, slower).sections
    assert section.num_runs == 2
    assert section.rows[0].point.seconds == pytest.approx(0.008)


def test_estimates_and_runs_without_a_ledger_are_left_out_and_counted() -> None:
    estimate = cell(LEDGER, passes="estimate", device="cpu")
    bare = cell({"latency/step_ms_median": 1.0}, batch_size=8)
    found = compute(comparison(estimate, bare, cell(LEDGER, batch_size=2)))
    assert [section.trainer for section in found.sections] == ["StandardTrainer"]
    assert [text.partition(":")[0] for text in found.left_out] == ["1 experiment is left out"] * 2


def test_points_above_a_ceiling_are_told_with_why() -> None:
    low = {"copy_bytes_per_s": 2.0**30}
    (doubt,) = doubts(rooflined(LEDGER, **low))
    assert doubt.startswith("Above the copy ceiling: forward (1,562 %); the whole step (781 %); noise")
    of_ledger, of_counters = doubts(rooflined(LEDGER | COUNTERS, **low))
    assert "noise (391 %). These bytes are what operators ask for" in of_ledger
    assert "forward (781 %); the whole step (586 %). What mostly reads" in of_counters
    (doubt,) = doubts(rooflined(LEDGER, matmul_flop_per_s=1e11))
    assert doubt.startswith("Above the matmul ceiling: forward (268 %).")
    many = [cell(LEDGER | CEILINGS, batch_size=size) for size in (1, 2)]
    (doubt,) = doubts(compute(comparison(*many), **low))
    assert "forward of StandardTrainer, tiny, batch 1, sequence 512 (1,562 %)" in doubt
    assert "and 3 more" in doubt
