"""Opacus's RDP accountant: fast, and looser than PRV.

Renyi differential privacy: Mironov 2017. Sampled Gaussian mechanism: Mironov, Talwar and Zhang 2019, "Renyi
Differential Privacy of the Sampled Gaussian Mechanism". Conversion to epsilon: Balle et al. 2020, "Hypothesis
Testing Interpretations and Renyi Differential Privacy", theorem 21.
"""

import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from typing import Any
from unittest.mock import patch

from dpprof.errors import AccountingError
from dpprof.privacy.guarantee import PrivateSteps
from dpprof.privacy.search import Found, least_noise

# Some dozen noise multipliers, each with all of Opacus's orders.
_MOST_REMEMBERED = 2**13


def rdp_epsilon(noise_multiplier: float, steps: PrivateSteps) -> float:
    """Return the least epsilon over Opacus's orders; infinite if none. Raises AccountingError on overflow."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(noise_multiplier, steps.sample_rate, steps.steps)]
    with warnings.catch_warnings(), each_order_once():
        # "Optimal order is the largest alpha": `rdp_floor` deals with it.
        warnings.simplefilter("ignore")
        try:
            epsilon = float(accountant.get_epsilon(steps.delta))
        except ArithmeticError as fault:
            said = f"RDP failed at noise multiplier {noise_multiplier:.4g}: {fault}"
            raise AccountingError(said) from None
    return math.inf if math.isnan(epsilon) else max(epsilon, 0.0)


def each_order_once() -> AbstractContextManager[Any]:
    """While entered, Opacus computes the RDP of one step once for each order, and not for every question.

    That takes most of the time of both accountants: PRV asks RDP four times for how long its grid must be.
    """
    from opacus.accountants.analysis import rdp

    if not hasattr(rdp, "_compute_rdp"):  # another version's
        return nullcontext()
    return patch.object(rdp, "_compute_rdp", _remembered(rdp._compute_rdp))


@cache
def _remembered(of_a_step: Callable[[float, float, float], float]) -> Callable[[float, float, float], float]:
    return lru_cache(maxsize=_MOST_REMEMBERED)(of_a_step)


@cache  # PRV's search starts from it, and it is shown next to PRV's
def rdp_noise(epsilon: float, steps: PrivateSteps) -> Found:
    """Return the least noise multiplier for an epsilon. Raises AccountingError if no noise reaches it."""
    floor = rdp_floor(steps.delta)
    if epsilon <= floor:
        raise AccountingError(
            f"RDP cannot certify epsilon {epsilon:g} at delta {steps.delta:g}: its orders end at "
            f"{_largest_order()}, with which no noise gets below {floor:.3g}"
        )

    def certified(noise: float) -> float:
        return rdp_epsilon(noise, steps)

    # Orders are far apart: epsilon falls in steps.
    return least_noise(certified, epsilon, start=1.0, floor=floor, is_smooth=False)


def rdp_floor(delta: float) -> float:
    """Return epsilon in the limit of infinite noise: the cost of delta at the largest order."""
    order = _largest_order()
    return max(math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1), 0.0)


def _largest_order() -> int:
    from opacus.accountants import RDPAccountant

    return int(max(RDPAccountant.DEFAULT_ALPHAS))
