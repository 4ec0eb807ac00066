from typing import Any

import pytest
from example_roofline import CEILINGS, COUNTERS, LEDGER, cell, comparison

from dpprof.reports.roofline.data import Roofline, Section, compute
from dpprof.reports.roofline.doubts import doubts
from dpprof.reports.roofline.roofs import Given
from dpprof.reports.roofline.texts import cells


def rooflined(*figures: dict[str, float], given: Given = Given()) -> Roofline:  # noqa: B008
    return compute(comparison(cell(*figures)), given)


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
    assert (found.sources, found.has_ceilings, found.left_out) == ({"ledger"}, True, [])
    assert doubts(found) == []


def test_without_ceilings_there_are_no_shares() -> None:
    found = rooflined(LEDGER)
    assert set(shares(found.sections[0]).values()) == {(None, None, None)}
    assert not found.has_ceilings


def test_the_figures_are_those_of_the_table() -> None:
    (section,) = rooflined(LEDGER | COUNTERS | CEILINGS).sections
    assert [cells(row) for row in section.rows] == [
        [
            "forward",
            "2.00",
            "16.0",
            "1.07",
            "64.0",
            "536.9",
            "107.4",
            "7.81",
            "24.4",
            "matmul",
            "DRAM, kernels",
        ],
        ["noise", "8.00", "32.0", "", "", "", "", "3.91", "12.2", "copy", "ledger, wall"],
        ["step", "4.00", "24.0", "1.07", "42.7", "268.4", "53.7", "5.86", "18.3", "matmul", "DRAM, kernels"],
    ]


def test_small_figures_keep_two_digits() -> None:
    (section,) = rooflined(LEDGER | {"flops/noise": 2.0**20}).sections
    assert cells(section.rows[1])[3:6] == ["0.001", "0.031", "0.13"]


def test_a_phase_that_moves_nothing_is_bound_by_nothing() -> None:
    idle = {"io/noise/written_mib": 0.0}
    (section,) = rooflined(LEDGER | CEILINGS | idle).sections
    assert cells(section.rows[1])[2:] == ["0.00", "", "", "", "", "0.00", "0.00", "", "ledger, wall"]


def test_several_runs_of_a_cell_are_one_section_of_medians() -> None:
    slower = {name: 3 * value if name.startswith("latency/") else value for name, value in LEDGER.items()}
    (section,) = rooflined(LEDGER, slower).sections
    assert section.title == "StandardTrainer, tiny, batch 4, sequence 512 (medians of 2 runs)"
    assert section.rows[0].point.seconds == pytest.approx(0.008)


def test_estimates_and_runs_without_a_ledger_are_left_out_and_counted() -> None:
    estimate = cell(LEDGER, passes="estimate", device="cpu")
    bare = cell({"latency/step_ms_median": 1.0}, batch_size=8)
    found = compute(comparison(estimate, bare, cell(LEDGER, batch_size=2)), Given())
    assert [section.trainer for section in found.sections] == ["StandardTrainer"]
    assert found.left_out == [
        "1 experiment is left out: of an estimate nothing ran at any speed",
        "1 experiment is left out: neither a ledger nor hardware counters were kept",
    ]


def test_points_above_the_copy_ceiling_are_told_with_why() -> None:
    low = Given(copy_bytes_per_s=2.0**30)
    (doubt,) = doubts(rooflined(LEDGER, given=low))
    assert doubt.startswith(
        "Above the copy ceiling: forward (1,562 %); the whole step (781 %); noise (391 %)."
    )
    (of_ledger, of_counters) = doubts(rooflined(LEDGER | COUNTERS, given=low))
    assert "noise (391 %). These bytes are what operators ask for" in of_ledger
    assert "forward (781 %); the whole step (586 %). What mostly reads can be faster" in of_counters


def test_points_above_the_matmul_ceiling_are_told_with_why() -> None:
    (doubt,) = doubts(rooflined(LEDGER, given=Given(matmul_flop_per_s=1e11)))
    assert doubt.startswith("Above the matmul ceiling: forward (268 %). The ceiling is too low")


def test_doubts_name_the_cells_where_there_are_several_but_not_all() -> None:
    many = [cell(LEDGER | CEILINGS, batch_size=size) for size in (1, 2)]
    (doubt,) = doubts(compute(comparison(*many), Given(copy_bytes_per_s=2.0**30)))
    assert "forward of StandardTrainer, tiny, batch 1, sequence 512 (1,562 %)" in doubt
    assert "and 3 more" in doubt
