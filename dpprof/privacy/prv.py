"""Opacus's PRV accountant with bounded cost: the size of its grid is computed before it runs.

It convolves the privacy losses of all steps on a grid by FFT: Gopi, Lee and Wutschitz 2021, "Numerical
Composition of Differential Privacy". The answer is an upper bound, at most 2 `error` above epsilon. Smaller
errors, more steps and less noise need longer grids, without limit; and rounding errors, which it does not
count, may exceed delta after many steps. Both are known beforehand from its own formulas, so the choice of
accountant depends on no time-out and is the same on every machine.
"""

import math
import warnings
from functools import lru_cache

from dpprof.errors import AccountingError
from dpprof.privacy.guarantee import PrivateSteps
from dpprof.privacy.rdp import each_order_once, rdp_epsilon

# Longest grid. Lengths are powers of two: 75 bytes and 0.33 us per point. Other lengths take up to 190 bytes,
# and scipy caches an FFT plan for each.
MOST_POINTS = 2**23
# Beyond this privacy loss, exp overflows.
_LARGEST_LOSS = 700
# Opacus's own share of delta for errors of the grid.
_GRID_SHARE = 1e-3
# Effect of rounding on delta per step: 2.1 x 2**-52 is the most seen, with sample rates from 1e-5 to 0.5 and
# up to a million steps.
_ROUNDING = 4 * 2.0**-52
_MOST_ROUNDING = 0.2


def prv_epsilon(noise_multiplier: float, steps: PrivateSteps, error: float) -> float:
    """Return an upper bound on the steps' epsilon, at most 2 `error` above it, with rounding allowed for.

    Raises AccountingError if PRV is too large to run, fails or cannot be trusted.
    """
    share = rounding_share(steps)
    if share > _MOST_ROUNDING:
        raise AccountingError(
            f"PRV cannot account {steps.steps:,} steps at delta {steps.delta:g}: "
            f"rounding errors alone may be {share * steps.delta:.1g}"
        )
    return _answer(noise_multiplier, steps, error, (1 - share) * steps.delta)


def _answer(noise_multiplier: float, steps: PrivateSteps, error: float, delta: float) -> float:
    from opacus.accountants import PRVAccountant

    points = num_points(noise_multiplier, steps, error)
    if points > MOST_POINTS:
        raise AccountingError(
            f"PRV would need {points:.2g} points, which take {75 * points:.2g} bytes or more"
        )
    accountant = PRVAccountant()
    accountant.history = [(noise_multiplier, steps.sample_rate, steps.steps)]
    errors = {"eps_error": error, "delta_error": _GRID_SHARE * steps.delta}
    with warnings.catch_warnings(), each_order_once():
        warnings.simplefilter("ignore")
        try:
            epsilon = float(accountant.get_epsilon(delta, **errors))
        except (ArithmeticError, ValueError, RuntimeError, MemoryError) as fault:
            said = f"{type(fault).__name__}: {fault}"
            raise AccountingError(f"PRV failed at noise multiplier {noise_multiplier:.4g}: {said}") from None
    if not math.isfinite(epsilon):
        raise AccountingError(f"PRV answered {epsilon} at noise multiplier {noise_multiplier:.4g}")
    return max(epsilon, 0.0)


def rounding_share(steps: PrivateSteps) -> float:
    """Return the share of delta that is kept for rounding errors."""
    return _ROUNDING * steps.steps / steps.delta


def num_points(noise_multiplier: float, steps: PrivateSteps, error: float) -> int:
    """Return the length of PRV's grid. Raises AccountingError if privacy losses overflow."""
    return 2 * math.ceil(_half_of_error_one(noise_multiplier, steps) / error) + 2


def affordable_error(noise_multiplier: float, steps: PrivateSteps, wanted: float) -> float:
    """Return the error of the shortest grid for `wanted`, or of the longest. Raises AccountingError."""
    half = _half_of_error_one(noise_multiplier, steps)
    points = MOST_POINTS
    while points > 4 and half / (points / 4 - 1.5) <= wanted:
        points //= 2
    return half / (points / 2 - 1.5)


@lru_cache(maxsize=64)
def _half_of_error_one(noise_multiplier: float, steps: PrivateSteps) -> float:
    """Return the largest privacy loss over the mesh width at an error of 1."""
    from opacus.accountants.analysis.prv import PoissonSubsampledGaussianPRV, compute_safe_domain_size

    loss = PoissonSubsampledGaussianPRV(steps.sample_rate, noise_multiplier)
    delta_error = _GRID_SHARE * steps.delta
    with warnings.catch_warnings(), each_order_once():
        warnings.simplefilter("ignore")
        try:
            largest = float(compute_safe_domain_size([loss], [steps.steps], 0.0, delta_error))
        except ArithmeticError:
            largest = math.inf
    if not largest < _LARGEST_LOSS:
        raise AccountingError(
            f"PRV cannot account noise multiplier {noise_multiplier:.4g}: "
            f"its privacy losses reach {largest:.3g}"
        )
    return largest * math.sqrt(steps.steps * math.log(12 / delta_error) / 2)


def check_plausible(epsilon: float, error: float, noise_multiplier: float, steps: PrivateSteps) -> None:
    """Raise AccountingError if PRV contradicts itself or RDP.

    On every grid the true epsilon lies between the answer and 2 errors below it, with delta off by at most
    the rounding share. RDP's epsilon is never below the true one.
    """
    wide, share = affordable_error(noise_multiplier, steps, 8 * error), rounding_share(steps)
    least = _answer(noise_multiplier, steps, wide, (1 + share) * steps.delta) - 2 * wide
    most = _answer(noise_multiplier, steps, wide, (1 - 3 * share) * steps.delta)
    if not least <= epsilon <= most + 2 * error:
        raise AccountingError(
            f"PRV contradicts itself: epsilon is {epsilon:.4g} on one grid, and "
            f"between {least:.4g} and {most:.4g} on another"
        )
    certified = rdp_epsilon(noise_multiplier, steps)
    if epsilon - 2 * error > certified:
        raise AccountingError(f"PRV answered epsilon {epsilon:.4g} where RDP certifies {certified:.4g}")
