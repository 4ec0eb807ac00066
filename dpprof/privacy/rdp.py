"""Opacus's RDP accountant: quick, and looser than PRV.

Renyi differential privacy: Mironov 2017. Of the sampled Gaussian mechanism: Mironov, Talwar and Zhang 2019,
"Renyi Differential Privacy of the Sampled Gaussian Mechanism". From there to epsilon: Balle et al. 2020,
"Hypothesis Testing Interpretations and Renyi Differential Privacy", theorem 21.
"""

import math
import warnings
from functools import cache

from dpprof.errors import AccountingError
from dpprof.privacy.guarantee import PrivateSteps
from dpprof.privacy.search import Found, least_noise


def rdp_epsilon(noise_multiplier: float, steps: PrivateSteps) -> float:
    """The smallest epsilon that one of Opacus's orders certifies; infinite if none does.

    Raises AccountingError for noise beyond what floating-point numbers can tell.
    """
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(noise_multiplier, steps.sample_rate, steps.steps)]
    with warnings.catch_warnings():
        # "Optimal order is the largest alpha": what follows from that is `rdp_floor`.
        warnings.simplefilter("ignore")
        try:
            epsilon = float(accountant.get_epsilon(steps.delta))
        except ArithmeticError as fault:
            said = f"RDP failed at noise multiplier {noise_multiplier:.4g}: {fault}"
            raise AccountingError(said) from None
    return math.inf if math.isnan(epsilon) else max(epsilon, 0.0)


@cache  # PRV's search begins with it, and it is shown beside PRV's
def rdp_noise(epsilon: float, steps: PrivateSteps) -> Found:
    """The least noise multiplier for an epsilon. Raises AccountingError for one that no noise reaches."""
    floor = rdp_floor(steps.delta)
    if epsilon <= floor:
        raise AccountingError(
            f"RDP cannot certify epsilon {epsilon:g} at delta {steps.delta:g}: its orders end at "
            f"{_largest_order()}, with which no noise gets below {floor:.3g}"
        )

    def certified(noise: float) -> float:
        return rdp_epsilon(noise, steps)

    # Between orders that are far apart, epsilon falls in stairs.
    return least_noise(certified, epsilon, start=1.0, floor=floor, is_smooth=False)


def rdp_floor(delta: float) -> float:
    """The epsilon that remains with endless noise: the cost of delta at the largest order."""
    order = _largest_order()
    return max(math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1), 0.0)


def _largest_order() -> int:
    from opacus.accountants import RDPAccountant

    return int(max(RDPAccountant.DEFAULT_ALPHAS))
