"""The chances that `verify` computes, against exact ones and against many draws of right noise."""

import pytest
import torch
from scipy import stats

from dpprof.measure.verifying import noise


@pytest.mark.parametrize("count", [1, 4, 100, 10**6])
@pytest.mark.parametrize("ratio", [0.2, 0.9, 1.001, 2.0])
def test_the_chance_of_a_deviation_is_that_of_chi_squared(count: int, ratio: float) -> None:
    squares = count * ratio
    exact = min(1.0, 2 * min(stats.chi2.cdf(squares, count), stats.chi2.sf(squares, count)))
    assert noise.chance_of_deviation(squares, count) == pytest.approx(exact, rel=1e-6, abs=1e-250)


@pytest.mark.parametrize("count", [3, 10, 1000])
@pytest.mark.parametrize("r", [0.05, 0.3, 0.9])
def test_the_chance_of_a_correlation_is_a_bound_of_the_exact_one(count: int, r: float) -> None:
    """The square of the correlation of two normal lists about 0 is beta distributed."""
    exact = float(stats.beta.sf(r * r, 0.5, (count - 1) / 2))
    assert exact <= noise.chance_of_correlation(r, count) <= max(10 * exact, 1e-12) * (1 + r * count**0.5)


def test_equal_lists_are_impossible_and_one_number_tells_nothing() -> None:
    assert noise.chance_of_correlation(1.0, 100) < 1e-300
    assert noise.chance_of_correlation(1.0, 1) == 1


def test_the_other_chances_against_exact_ones() -> None:
    assert noise.chance_of_mean(30.0, 100) == pytest.approx(2 * stats.norm.sf(3))
    uniform = torch.linspace(0, 1, 1001, dtype=torch.float64)
    assert noise.chance_of_distribution(uniform) > 0.99
    assert noise.chance_of_distribution(uniform**2) < 1e-50
    extremes = torch.tensor([4.0, 0.0, 3.0])
    assert noise.chance_of_extremes(extremes, 4) == 0
    assert noise.chance_of_extremes(torch.full((1000,), 4.0), 4) == 1


def test_right_noise_seldom_looks_odd() -> None:
    """Of 2,000 draws at most about a share of p has a chance of p or less."""
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randn(2000, 2, 50, generator=generator, dtype=torch.float64)
    found = {
        "deviation": [noise.chance_of_deviation(float(x.square().sum()), 100) for x in drawn],
        "mean": [noise.chance_of_mean(float(x.sum()), 100) for x in drawn],
        "correlation": [
            noise.chance_of_correlation(float(x[0] @ x[1] / x[0].norm() / x[1].norm()), 50) for x in drawn
        ],
        "distribution": [noise.chance_of_distribution(torch.special.ndtr(x)) for x in drawn],
    }
    for name, values in found.items():
        share = sum(value <= 0.05 for value in values) / len(values)
        assert share <= 0.065, name
