"""How likely it is that right noise looks as far off as what was seen: two-sided chances.

Each is exact or an upper bound for any number of values, so that no test raises more false alarms than it
says. Values are in units of the standard deviation asked for: independent, normal, of mean 0 and variance 1.
"""

import math

import torch
from torch import Tensor


def of_deviation(sum_of_squares: float, count: int) -> float:
    """Of this sum of squares: chi-squared with `count` degrees of freedom."""
    half, x = torch.tensor([count / 2, sum_of_squares / 2], dtype=torch.float64)
    less = float(torch.special.gammainc(half, x))
    return min(1.0, 2 * min(less, float(torch.special.gammaincc(half, x))))


def of_mean(total: float, count: int) -> float:
    """Of this sum of values."""
    return math.erfc(abs(total) / math.sqrt(2 * count))


def of_extremes(squares_P: Tensor, count: int) -> float:
    """Of the smallest and the largest of P sums of `count` squares each."""
    of_one = [of_deviation(float(squares), count) for squares in (squares_P.min(), squares_P.max())]
    return min(1.0, min(of_one) * len(squares_P))


def of_correlation(r: float, count: int) -> float:
    """Of this correlation of two lists of `count` values, means not taken off: at most (1 - r^2)^((n-1)/2),
    twice the bound of a spherical cap.
    """
    return math.exp((count - 1) / 2 * math.log1p(-min(r * r, 1 - 1e-16)))


def of_distribution(quantiles: Tensor) -> float:
    """Of the distance between the distribution of values, given as their quantiles under the right one, and
    the uniform one: the inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant.
    """
    ordered = quantiles.flatten().double().sort().values
    count = len(ordered)
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    distance = float(torch.maximum((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))
    return min(1.0, 2 * math.exp(-2 * count * distance**2))
