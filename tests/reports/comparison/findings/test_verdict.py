"""What findings a comparison has, and in which order; and why if it has none."""

import pytest
from example_estimates import estimate
from example_findings import BUSY, FLAT, GHOST, STANDARD, run
from example_results import comparison, result

from dpprof.figures.results import Result
from dpprof.record.record import Failure
from dpprof.reports.comparison.findings.verdict import NoVerdict, Why, verdict


def test_the_most_useful_comes_first() -> None:
    cells = [run(STANDARD, 0.1, 10), run(FLAT, 0.2, 40), run(GHOST, 0.15, 11)]
    assert [found.topic for found in verdict(comparison(*cells))] == [
        "Use",
        "Time",
        "Memory",
        "flat",
        "ghost",
    ]


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([], Why.NOTHING_FINISHED),
        ([result(FLAT, failure=Failure("error", "x"))], Why.NOTHING_FINISHED),
        ([result(STANDARD, step_s=0.1), result(FLAT, step_s=0.2)], Why.TOO_LITTLE),
        ([result(FLAT, step_s=0.1)], Why.NO_TWO_TRAINERS),
        ([result(FLAT, step_s=[0.1, 0.3] * 5, peak_mib=9)], Why.NO_TWO_TRAINERS),
        (
            [result(trainer, step_s=[0.1] * 9, **BUSY) for trainer in (FLAT, GHOST)],  # type: ignore[arg-type]
            Why.DISTURBED,
        ),
    ],
)
def test_no_verdict_where_the_data_carries_none(cells: list[Result], why: Why) -> None:
    (only,) = verdict(comparison(*cells))
    assert (only.topic, only.text, only.data) == ("No verdict", why.value, NoVerdict(why))


def test_estimates_of_a_larger_model_do_not_hide_that_nothing_finished() -> None:
    foreseen = comparison(estimate(FLAT), estimate(GHOST, peak=50))
    found = verdict(comparison(result(FLAT, failure=Failure("error", "x"))), foreseen)
    assert [finding.topic for finding in found] == ["No verdict", "Estimate"]
