from example_roofline import CEILINGS, COUNTERS, LEDGER, cell

from dpprof.reports.roofline import points as roofline
from dpprof.reports.roofline.points import Point

MIB = 2**20


def points(figures: dict[str, float]) -> list[Point]:
    return roofline.points(cell(figures))


def test_phases_come_as_a_step_goes_through_them_and_the_step_last() -> None:
    assert points(LEDGER) == [
        Point("forward", "ledger", 64 * MIB, 0.004, 2**30),
        Point("noise", "ledger", 32 * MIB, 0.008, 0),
        Point("step", "ledger", 96 * MIB, 0.012, 2**30),
    ]


def test_rates_are_the_arithmetic_of_a_point() -> None:
    forward, noise, _ = points(LEDGER)
    assert forward.intensity == 16
    assert forward.flop_per_s == 2**30 / 0.004
    assert forward.bytes_per_s == 64 * MIB / 0.004
    assert noise.bytes_per_s == 32 * MIB / 0.008
    assert (noise.intensity, noise.flop_per_s) == (None, None), "no FLOPs were booked: nothing to tell"


def test_hardware_counters_replace_bytes_and_time_together() -> None:
    assert points(LEDGER | COUNTERS) == [
        Point("forward", "counters", 16 * MIB, 0.002, 2**30),
        Point("noise", "ledger", 32 * MIB, 0.008, 0),
        Point("step", "counters", 24 * MIB, 0.004, 2**30),
    ]


def test_counters_alone_give_bytes_and_time_without_flops() -> None:
    assert points(COUNTERS) == [
        Point("forward", "counters", 16 * MIB, 0.002, None),
        Point("step", "counters", 24 * MIB, 0.004, None),
    ]


def test_kernel_time_is_never_set_against_the_ledgers_bytes() -> None:
    without_dram = {name: value for name, value in COUNTERS.items() if "dram_written" not in name}
    assert points(LEDGER | without_dram) == points(LEDGER)
    assert points(without_dram) == []


def test_without_a_time_there_are_no_rates() -> None:
    untimed = {name: value for name, value in LEDGER.items() if not name.startswith("latency/")}
    for point in points(untimed):
        assert (point.seconds, point.flop_per_s, point.bytes_per_s) == (None, None, None)
    assert points(untimed)[0].intensity == 16


def test_figures_that_are_no_phases_give_no_points() -> None:
    assert points(CEILINGS | {"memory/at_peak/noise_mib": 1.0, "profiler/copy/calls": 1.0}) == []


def test_poisson_sampled_batches_have_no_rates_from_the_ledger() -> None:
    """Its bytes are those of the largest batch, and the time is that of all sizes."""
    found = points(LEDGER | {"step/mean_batch": 3.5})
    assert found
    assert all(point.seconds is None for point in found)
    assert all(point.seconds for point in points(COUNTERS | {"step/mean_batch": 3.5}))
