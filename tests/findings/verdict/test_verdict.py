"""What findings a comparison has, and in which order; and why if it has none."""

import pytest
from example_estimates import estimate
from example_findings import BUSY, FLAT, GHOST, STANDARD, run
from example_results import comparison, result

from dpprof.findings.verdict.verdict import verdict
from dpprof.record.figures.results import Result
from dpprof.record.record import Failure, FailureKind

FAILED = result(FLAT, failure=Failure(FailureKind.ERROR, "x"))


def test_the_most_useful_comes_first() -> None:
    cells = [run(STANDARD, 0.1, 10), run(FLAT, 0.2, 40), run(GHOST, 0.15, 11)]
    topics = [found.topic for found in verdict(comparison(*cells))]
    assert topics == ["Use", "Time", "Memory"]


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([], "none.finished"),
        ([FAILED], "none.finished"),
        ([result(STANDARD, step_s=0.1), result(FLAT, step_s=0.2)], "none.compared"),
        ([result(FLAT, step_s=0.1)], "none.together"),
        ([result(FLAT, step_s=[0.1, 0.3] * 5, peak_mib=9)], "none.together"),
        ([result(t, step_s=[0.1] * 9, **BUSY) for t in (FLAT, GHOST)], "none.calm"),  # type: ignore[arg-type]
    ],
)
def test_no_verdict_where_the_data_carries_none(cells: list[Result], why: str) -> None:
    (only,) = verdict(comparison(*cells))
    assert (only.topic, only.kind) == ("No verdict", why)


def test_estimates_of_a_larger_model_do_not_hide_that_nothing_finished() -> None:
    found = verdict(comparison(FAILED), comparison(estimate(FLAT), estimate(GHOST, peak=50)))
    assert [finding.topic for finding in found] == ["No verdict", "Estimate"]
