"""Noise and epsilon: against Opacus's own search, each other, and an accountant of other hands and method.

Google's privacy loss distributions (Doroshenko et al. 2022, "Connect the Dots: Tighter Discrete
Approximations of Privacy Loss Distributions") account both neighbours, the one with a document more and the
one with a document less. Their epsilon is an upper bound too: with a mesh of epsilon / 2000 the noise is
within 0.1 % of that with a finer one.
"""

import math
from collections.abc import Callable
from functools import partial

import pytest
from covering import product, sampled
from example_privacy import pld_epsilon
from opacus.accountants.utils import get_noise_multiplier

from dpprof.errors import ConfigError
from dpprof.privacy.accounting import epsilon_of, noise_by_rdp, noise_for
from dpprof.privacy.guarantee import PRV, RDP, PrivateSteps, default_delta
from dpprof.privacy.rdp import rdp_floor
from dpprof.privacy.search import PRECISION

# Opacus says so whenever it is asked for RDP with much noise.
pytestmark = pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")
STEPS = [PrivateSteps(0.01, 50, 1e-6), PrivateSteps(1e-3, 50, 1e-8), PrivateSteps(0.2, 10, 1e-5)]


@pytest.mark.parametrize(("steps", "epsilon"), product(STEPS, (6.0, 0.8)))
def test_as_opacus_searches_if_its_tolerances_are_tight(steps: PrivateSteps, epsilon: float) -> None:
    for accountant, search in ((PRV, noise_for), (RDP, noise_by_rdp)):
        found = search(epsilon, steps)
        opacus = get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=steps.delta,
            sample_rate=steps.sample_rate,
            steps=steps.steps,
            accountant=accountant,
            epsilon_tolerance=PRECISION * epsilon,
            eps_error=PRECISION * epsilon,  # PRV's; by default 0.01
        )
        # Each may be that much above the least, Opacus's by its tolerance of epsilon.
        assert found.noise_multiplier == pytest.approx(opacus, rel=2 * PRECISION)
        assert found.accountant == accountant
        assert found.note == ""
        assert found.epsilon <= epsilon


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_noise_is_enough_and_the_least(epsilon: float) -> None:
    found = noise_for(epsilon, STEPS[0])
    again = epsilon_of(found.noise_multiplier, STEPS[0])
    assert again.epsilon == pytest.approx(found.epsilon, rel=PRECISION)
    assert epsilon_of(found.noise_multiplier * (1 - 3 * PRECISION), STEPS[0]).epsilon > epsilon


def test_a_tiny_epsilon_is_told_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 0.01, Opacus's default error, every epsilon here is the same."""
    monkeypatch.setattr("dpprof.privacy.prv.MOST_POINTS", 2**20)
    steps = PrivateSteps(0.001, 10, 1e-6)
    some, less = (epsilon_of(noise, steps).epsilon for noise in (4.0, 8.0))
    assert 0 < less < 0.6 * some
    assert some < 0.01


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        *((partial(noise_for, epsilon, STEPS[0]), "epsilon") for epsilon in (0.0, math.inf, math.nan)),
        (partial(epsilon_of, -1.0, STEPS[0]), "noise_multiplier"),
        (partial(default_delta, 0), "num_documents"),
        (partial(PrivateSteps, 0.0, 1, 0.1), "sample_rate"),
        (partial(PrivateSteps, math.nan, 1, 0.1), "sample_rate"),
        (partial(PrivateSteps, 0.1, 0, 0.1), "steps"),
        (partial(PrivateSteps, 0.1, 1, 0.0), "delta"),
        (partial(PrivateSteps, 0.1, 1, 1.0), "delta"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(asked: Callable[[], object], name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: got .*, allowed: a .*number"):
        asked()


def test_delta_is_a_power_of_ten_and_at_most_a_tenth_of_one_document() -> None:
    for num_documents, delta in ((1, 1e-1), (7, 1e-2), (50_000, 1e-6), (100_000, 1e-6), (100_001, 1e-7)):
        assert default_delta(num_documents) == delta
        assert delta <= 1 / (10 * num_documents) < 10 * delta


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
