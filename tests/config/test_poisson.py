import pytest
from scipy.stats import poisson

from dpprof.config.poisson import largest_batch


@pytest.mark.parametrize("expected", [0.5, 1, 4, 37, 1000, 250_000])
@pytest.mark.parametrize("tail", [0.5, 1e-2, 1e-6, 1e-12])
def test_no_more_than_the_tail_exceeds_the_largest_batch(expected: float, tail: float) -> None:
    size = largest_batch(expected, tail)
    assert poisson.sf(size, expected) <= tail * (1 + 1e-6)
    assert size == 0 or poisson.sf(size - 1, expected) > tail * (1 - 1e-6)
