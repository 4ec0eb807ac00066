"""What findings a comparison has, and in which order; and why if it has none."""

import pytest
from example_estimates import estimate
from example_findings import BUSY, FLAT, GHOST, STANDARD, run
from example_results import comparison, result

from dpprof.findings.verdict.verdict import DISTURBED, NO_TWO_TRAINERS, NOTHING_FINISHED, TOO_LITTLE, verdict
from dpprof.record.figures.results import Result
from dpprof.record.record import Failure, FailureKind

FAILED = result(FLAT, failure=Failure(FailureKind.ERROR, "x"))


def test_the_most_useful_comes_first() -> None:
    cells = [run(STANDARD, 0.1, 10), run(FLAT, 0.2, 40), run(GHOST, 0.15, 11)]
    topics = [found.topic for found in verdict(comparison(*cells))]
    assert topics == ["Use", "Time", "Memory", "flat", "ghost"]


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([], NOTHING_FINISHED),
        ([FAILED], NOTHING_FINISHED),
        ([result(STANDARD, step_s=0.1), result(FLAT, step_s=0.2)], TOO_LITTLE),
        ([result(FLAT, step_s=0.1)], NO_TWO_TRAINERS),
        ([result(FLAT, step_s=[0.1, 0.3] * 5, peak_mib=9)], NO_TWO_TRAINERS),
        ([result(t, step_s=[0.1] * 9, **BUSY) for t in (FLAT, GHOST)], DISTURBED),  # type: ignore[arg-type]
    ],
)
def test_no_verdict_where_the_data_carries_none(cells: list[Result], why: str) -> None:
    (only,) = verdict(comparison(*cells))
    assert (only.topic, only.text) == ("No verdict", why)


def test_estimates_of_a_larger_model_do_not_hide_that_nothing_finished() -> None:
    found = verdict(comparison(FAILED), comparison(estimate(FLAT), estimate(GHOST, peak=50)))
    assert [finding.topic for finding in found] == ["No verdict", "Estimate"]
