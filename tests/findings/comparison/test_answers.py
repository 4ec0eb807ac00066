"""Each trainer's largest batch, its time for 1,000 samples, and what bounds that, against arithmetic."""

from collections.abc import Sequence
from typing import Any

import pytest
from example_estimates import FLAT, GHOST, estimate
from example_findings import OOM, STANDARD
from example_results import comparison, result
from example_runs import known

from dpprof.findings.comparison.answers import Answer, LargestBatch, answers
from dpprof.record.figures.results import Result
from dpprof.record.ledger import PhaseTime


def found(*results: Result) -> dict[str, Answer]:
    """The answers by trainer, at the only place."""
    ((_, group),) = answers(comparison(*results))
    return {answer.trainer: answer for answer in group}


def series(trainer: str, sizes: Sequence[int], mib: float = 10, **more: Any) -> list[Result]:
    """Runs whose peak grows by so many MiB a sample, on a machine with 100 MiB."""
    machine = {"memory_gib": str(100 / 1024)}
    return [
        result(
            trainer,
            step_s=[0.1 * size] * 9,
            peak_mib=mib * size,
            at_peak={"activations": mib * size},
            peak_in={"backward": mib * size},
            batch_size=size,
            environment=machine,
            **more,
        )
        for size in sizes
    ]


def lacking(trainer: str, size: int) -> Result:
    return result(trainer, step_s=0.1, outcomes={}, failure=OOM, batch_size=size)


def test_where_memory_ran_out_the_batches_that_were_tried_are_told() -> None:
    told = found(*series(STANDARD, [2]), *series(FLAT, [2, 4]), lacking(FLAT, 8), lacking(GHOST, 4))
    assert told[FLAT].largest == LargestBatch(4, 8)
    assert told[GHOST].largest == LargestBatch(0, 4)
    assert told[GHOST].cell is None
    assert told[STANDARD].largest is None, "one peak is no line"


def test_else_lines_through_the_peaks_of_two_batches_are_extended_but_not_far() -> None:
    told = found(*series(STANDARD, [2, 4]), *series(FLAT, [2, 4], 20), *series(GHOST, [1, 2], 0.1))
    assert told[STANDARD].largest == LargestBatch(10, is_extrapolated=True)
    assert told[FLAT].largest == LargestBatch(5, is_extrapolated=True)
    assert told[GHOST].largest == LargestBatch(32, is_extrapolated=True, is_more=True)


def test_peaks_that_no_ledger_tells_by_phase_make_no_line() -> None:
    machine = {"memory_gib": str(100 / 1024)}
    two, four = (result(FLAT, step_s=0.1, peak_mib=10 * n, batch_size=n, environment=machine) for n in (2, 4))
    assert found(two, four)[FLAT].largest is None
    assert found(*series(FLAT, [2]), four)[FLAT].largest is None, "one of them is no line"


def test_an_estimate_adds_what_the_device_needs_beside_tensors() -> None:
    """An H200 has 139.8 GiB; 544 MiB of that are no tensors'."""
    sizes = [estimate(FLAT, peak=40 + 1000 * size, batch_size=size) for size in (4, 8)]
    assert found(*sizes)[FLAT].largest == LargestBatch(128, is_extrapolated=True, is_more=True)
    lacks = estimate(FLAT, peak=200_000, batch_size=16)
    assert found(*sizes, lacks)[FLAT].largest == LargestBatch(8, 16)


def test_seconds_are_measured_or_predicted_at_the_largest_batch() -> None:
    assert known(found(*series(FLAT, [2, 4]))[FLAT].seconds) == pytest.approx((100.0,) * 3)
    predicted = known(found(estimate(FLAT, batch_size=4))[FLAT].seconds)
    assert predicted == pytest.approx((0.5, 0.45, 0.625)), "2 ms for 4 samples"
    (busy,) = series(FLAT, [2])
    assert busy.record is not None
    busy.record.others_processor_s, busy.record.timed_s = 9.0, 9.0
    busy.record.environment |= {"cpu_cores": "2", "torch_threads": "2"}
    assert found(busy)[FLAT].seconds is None, "other processes ran"


@pytest.mark.parametrize(("waiting_s", "bound", "pct"), [(0.006, "launches", 75), (0.0, "memory", 100)])
def test_what_takes_the_most_of_a_predicted_step_bounds_it(waiting_s: float, bound: str, pct: float) -> None:
    made = estimate(FLAT)
    known(known(made.record).ledger).phase_s = {"backward": PhaseTime(0.002 + waiting_s, 1, 9, operators=5)}
    answer = found(made)[FLAT]
    assert answer.bound == bound
    assert answer.share_pct == pytest.approx(pct)
    assert found(estimate(FLAT))[FLAT].bound is None, "no operator was issued"
