"""Opacus's RDP accountant: fast, and looser than PRV.

Renyi differential privacy: Mironov 2017. Sampled Gaussian mechanism: Mironov, Talwar and Zhang 2019, "Renyi
Differential Privacy of the Sampled Gaussian Mechanism". Conversion to epsilon: Balle et al. 2020, "Hypothesis
Testing Interpretations and Renyi Differential Privacy", theorem 21.
"""

import math
import warnings
from functools import cache

from dpprof.errors import AccountingError
from dpprof.privacy.guarantee import PrivateSteps
from dpprof.privacy.search import Found, least_noise


def rdp_epsilon(noise_multiplier: float, steps: PrivateSteps) -> float:
    """Return the least epsilon over Opacus's orders; infinite if none. Raises AccountingError on overflow."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(noise_multiplier, steps.sample_rate, steps.steps)]
    with warnings.catch_warnings():
        # "Optimal order is the largest alpha": `rdp_floor` deals with it.
        warnings.simplefilter("ignore")
        try:
            epsilon = float(accountant.get_epsilon(steps.delta))
        except ArithmeticError as fault:
            said = f"RDP failed at noise multiplier {noise_multiplier:.4g}: {fault}"
            raise AccountingError(said) from None
    return math.inf if math.isnan(epsilon) else max(epsilon, 0.0)


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
