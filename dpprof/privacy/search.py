"""The least noise for an epsilon, with few questions to an accountant: each may take seconds.

Everything is in logarithms: of noise, and of epsilon over its target.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from dpprof.errors import AccountingError

# How far the noise may be above the least, as a share of it.
PRECISION = 1e-3
# From known noise, a question about this much more or less may show that nothing is left to find.
_CLOSE = 0.9 * PRECISION
_MOST_QUESTIONS = 60
_MOST_NOISE = 1e6
_HIGHEST = math.log(_MOST_NOISE)
# Answers so near to each other tell the steepness for sure.
_NEAR = 0.03
# Too little noise is expensive to ask about: towards it, at most half at a time.
_LONGEST_STEP_DOWN = math.log(2)


class Found(NamedTuple):
    """A noise multiplier, its epsilon, and how steeply epsilon falls there: by so many per cent for one."""

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
    """The least noise multiplier, to about 0.1 %, whose epsilon does not exceed the target.

    A secant; between noise that is too little and noise that is enough, every fourth question is in the
    middle. `floor` is the epsilon that remains with endless noise: what lies above it falls at least as fast
    as noise grows. Where it does so smoothly, its steepness tells how much noise there is too much, without a
    question more. Raises AccountingError if no noise is found.
    """
    position, earlier, sure = math.log(start), None, steepness
    too_little, enough, found = -math.inf, math.inf, Found(math.nan, math.nan, math.nan)
    stride, num_between = _CLOSE, 0
    for _ in range(_MOST_QUESTIONS):
        epsilon = epsilon_at(math.exp(position))
        height = _log_ratio(epsilon - floor, target - floor)
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
    raise AccountingError(f"no noise multiplier up to {_MOST_NOISE:g} was found for epsilon {target:g}")


def _log_ratio(excess: float, wanted: float) -> float:
    """Within bounds: an excess of nothing, or without end, is far off and no more."""
    return math.log(min(max(excess / wanted, 1e-3), 1e3))
