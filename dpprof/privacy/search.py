"""Search for the least noise for an epsilon with few accountant calls, as each may take seconds.

Works on logarithms: of noise, and of epsilon over its target.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from dpprof.errors import AccountingError

# Relative tolerance of the noise, and of epsilon on an accountant's grid: together below 0.1 % of the noise.
PRECISION = 5e-4
# Relative step from known noise that can finish the search.
_CLOSE = 0.9 * PRECISION
_MOST_QUESTIONS = 60
MOST_NOISE = 1e6
_HIGHEST = math.log(MOST_NOISE)
# Distance up to which two answers give a reliable slope.
_NEAR = 0.03
# Accounting too little noise is expensive, so steps down halve the noise at most.
_LONGEST_STEP_DOWN = math.log(2)


class Found(NamedTuple):
    """A noise multiplier, its epsilon, and the slope there: percent of epsilon per percent of noise."""

    noise: float
    epsilon: float
    steepness: float


def least_noise(
    epsilon_at: Callable[[float], float],
    target: float,
    start: float,
    *,
    steepness: float = 1.0,
    floor: float = 0.0,
    is_smooth: bool = True,
) -> Found:
    """Return the least noise multiplier, to `PRECISION`, that keeps epsilon within the target.

    Secant method; once bracketed, every fourth step is a bisection. `floor` is epsilon in the limit of
    infinite noise: the excess above it falls at least as fast as noise grows. If it falls smoothly, the slope
    tells the excess of noise without another call. Raises AccountingError if no noise is found.
    """
    position, earlier, sure = math.log(start), None, steepness
    too_little, enough, found = -math.inf, math.inf, Found(math.nan, math.nan, math.nan)
    stride, num_between = _CLOSE, 0
    for _ in range(_MOST_QUESTIONS):
        epsilon = epsilon_at(math.exp(position))
        height = math.log(min(max((epsilon - floor) / (target - floor), 1e-3), 1e3))
        if earlier is not None and abs(position - earlier[0]) > 2 * PRECISION:
            steepness = max((earlier[1] - height) / (position - earlier[0]), 1.0)
            sure = steepness if abs(position - earlier[0]) <= _NEAR else 1.0
        earlier = position, height
        if height > 0:
            too_little = position
        else:
            enough, found = position, Found(math.exp(position), epsilon, sure)
        if enough - too_little <= PRECISION or (is_smooth and 0 <= -height / sure <= PRECISION):
            return found
        if too_little >= _HIGHEST:
            break
        step = max(height / steepness + PRECISION / 2, -_LONGEST_STEP_DOWN)
        if math.isinf(enough - too_little):
            position = min(position + math.copysign(max(abs(step), stride), height), _HIGHEST)
            stride *= 2
        else:
            num_between += 1
            lowest, highest = too_little + _CLOSE, enough - _CLOSE
            position = min(max(position + step, lowest), highest)
            if num_between % 4 == 0 or lowest > highest:
                position = (too_little + enough) / 2
    raise AccountingError(f"no noise multiplier up to {MOST_NOISE:g} was found for epsilon {target:g}")
