import pytest
from scipy.stats import poisson

from dpprof.reports.fit import expected_batch


@pytest.mark.parametrize("largest", [1, 8, 57, 4000])
@pytest.mark.parametrize("tail", [1e-6, 0.01, 0.5])
def test_the_expected_batch_exceeds_the_largest_one_as_often_as_asked(largest: int, tail: float) -> None:
    mean = expected_batch(largest, tail)
    assert poisson.sf(largest, mean) == pytest.approx(tail, rel=1e-6)
