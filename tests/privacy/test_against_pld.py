"""Noise on a grid of budgets, against an accountant of other hands and another method.

Google's privacy loss distributions (Doroshenko et al. 2022, "Connect the Dots: Tighter Discrete
Approximations of Privacy Loss Distributions") account both neighbours, the one with a document more and the
one with a document less. Their epsilon is an upper bound too: with a mesh of epsilon / 2000 the noise is
within 0.1 % of that with a finer one.
"""

import pytest
from covering import sampled
from example_privacy import pld_epsilon

from dpprof.privacy.accounting import noise_by_rdp, noise_for
from dpprof.privacy.guarantee import PrivateSteps, default_delta
from dpprof.privacy.rdp import rdp_floor

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
# Documents, sample rate, steps, and budgets; few at a rate of a half, where Opacus's RDP is slow.
TRAININGS = [
    (10**8, 1e-5, 300, EPSILONS),
    (10**7, 1e-4, 300, EPSILONS),
    (10**6, 1e-3, 1000, EPSILONS),
    (10**5, 1e-2, 1000, EPSILONS),
    (10**4, 0.1, 300, EPSILONS),
    (10**4, 0.4, 100, (0.1, 1.0, 3.0)),
    (10**4, 0.5, 100, (1.0, 10.0)),
    (10**3, 0.9, 20, (3.0,)),
    (10**3, 1.0, 20, (3.0,)),
]
# By how much noise may differ from PLD's. PRV's error is 0.1 to 0.2 % of epsilon here.
MOST_MORE, MOST_LESS = 0.005, 0.001
BUDGETS = [(epsilon, *training) for *training, epsilons in TRAININGS for epsilon in epsilons]
# A budget for every other training, from the lowest sample rate to the highest; none at a half.
SAMPLE = [
    (epsilons[i % len(epsilons)], documents, rate, steps)
    for i, (documents, rate, steps, epsilons) in enumerate(TRAININGS)
    if i % 2 == 0 and rate != 0.5
]


@pytest.mark.parametrize(("epsilon", "num_documents", "sample_rate", "num_steps"), sampled(BUDGETS, SAMPLE))
def test_noise_is_that_of_privacy_loss_distributions(
    epsilon: float, num_documents: int, sample_rate: float, num_steps: int
) -> None:
    steps = PrivateSteps(sample_rate, num_steps, default_delta(num_documents))
    found = noise_for(epsilon, steps)
    assert found.accountant == "prv"
    mesh = 5e-4 * epsilon
    assert pld_epsilon(found.noise_multiplier * (1 + MOST_LESS), steps, mesh) < epsilon
    assert pld_epsilon(found.noise_multiplier / (1 + MOST_MORE), steps, mesh) > epsilon
    if epsilon > rdp_floor(steps.delta):
        assert noise_by_rdp(epsilon, steps).noise_multiplier > 1.01 * found.noise_multiplier
