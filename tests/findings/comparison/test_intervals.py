import math
import random
import statistics

import pytest
from example_findings import BUSY
from example_results import comparison, result
from scipy import stats

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.intervals import step_ratio
from dpprof.record.record import Failure, FailureKind

RUNS = ([0.100, 0.103, 0.099, 0.101], [0.120, 0.118, 0.125])


def cell(*runs: list[float]) -> Cell:
    return comparison(*(result(step_s=steps, name=str(i)) for i, steps in enumerate(runs))).cells[0]


def repeated(medians: list[float]) -> Cell:
    return cell(*([m, m, m] for m in medians))


def test_the_interval_of_repeated_runs_is_welchs() -> None:
    now, before = (repeated(runs) for runs in RUNS)
    ratio = step_ratio(now, before)
    assert ratio is not None
    logs = [[math.log(s) for s in runs] for runs in RUNS]
    reference = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    assert math.log(ratio.high / ratio.low) == pytest.approx(reference.high - reference.low)
    assert ratio.value == pytest.approx(statistics.median(RUNS[0]) / statistics.median(RUNS[1]), rel=1e-3)
    assert math.sqrt(ratio.low * ratio.high) == pytest.approx(ratio.value)
    assert ratio.between_runs
    assert ratio.is_clear


def test_steps_of_one_run_stand_in_with_the_error_of_their_median() -> None:
    """In 400 pairs of equal runs the interval misses the truth about as often as it says: 5 %."""
    rng = random.Random(0)
    missed = 0
    for _ in range(400):
        one, other = (cell([0.1 * math.exp(rng.gauss(0, 0.05)) for _ in range(20)]) for _ in range(2))
        ratio = step_ratio(one, other)
        assert ratio is not None
        assert not ratio.between_runs
        missed += ratio.is_clear
    assert 0.01 < missed / 400 < 0.12


@pytest.mark.parametrize("steps", [[], [0.1], [0.1] * 4])
def test_a_few_steps_say_nothing(steps: list[float]) -> None:
    assert step_ratio(cell(steps), cell([0.1] * 20)) is None
    assert step_ratio(cell([0.1] * 20), cell(steps)) is None


def test_no_spread_at_all_is_a_difference_without_doubt() -> None:
    ratio = step_ratio(cell([0.2] * 5), cell([0.1] * 5))
    assert ratio is not None
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((2, 2, 2))


def test_disturbed_and_failed_runs_do_not_count() -> None:
    good = [result(step_s=[0.1] * 9, name=str(i)) for i in range(2)]
    failed = result(step_s=[9.0] * 9, name="failed", failure=Failure(FailureKind.INTERRUPTED, "x"))
    bad = result(step_s=[9.0] * 9, name="bad", **BUSY)  # type: ignore[arg-type]
    calm = comparison(*good).cells[0]
    ratio = step_ratio(comparison(*good, bad, failed).cells[0], calm)
    assert ratio is not None
    assert ratio.value == pytest.approx(1)
    assert step_ratio(comparison(bad).cells[0], calm) is None
    assert step_ratio(calm, comparison(bad).cells[0]) is None
