"""Noise and epsilon, against Opacus's own search, the exact Gaussian mechanism, and each other."""

import math

import pytest
from covering import sampled
from opacus.accountants.utils import get_noise_multiplier
from scipy.optimize import brentq
from scipy.stats import norm

from dpprof.errors import ConfigError
from dpprof.privacy.accounting import epsilon_of, noise_by_rdp, noise_for
from dpprof.privacy.guarantee import PRV, RDP, PrivateSteps
from dpprof.privacy.search import PRECISION

# Opacus says so whenever it is asked for RDP with much noise.
pytestmark = pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")
STEPS = [PrivateSteps(0.01, 50, 1e-6), PrivateSteps(1e-3, 50, 1e-8), PrivateSteps(0.2, 10, 1e-5)]


@pytest.mark.parametrize(
    ("steps", "epsilon"),
    sampled(
        [(steps, epsilon) for steps in STEPS for epsilon in (6.0, 0.8)], [(STEPS[0], 6.0), (STEPS[1], 0.8)]
    ),
)
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


def test_figures_that_are_known() -> None:
    """Opacus's answers to these were 1.660 and 1.582 at its own tolerances, of 0.01 each."""
    steps = PrivateSteps(sample_rate=500 / 50_000, steps=1000, delta=1e-6)
    assert noise_by_rdp(1.0, steps).noise_multiplier == pytest.approx(1.660, rel=1e-3)
    assert noise_for(1.0, steps).noise_multiplier == pytest.approx(1.5635, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 9.0])
def test_without_sampling_it_is_the_gaussian_mechanism(epsilon: float) -> None:
    """Balle and Wang 2018, theorem 8: T steps with noise s are one of sensitivity sqrt(T) / s."""
    num_steps, delta = 50, 1e-5

    def excess(noise: float) -> float:
        mu = math.sqrt(num_steps) / noise
        above = norm.sf(epsilon / mu - mu / 2)
        return float(above - math.exp(epsilon) * norm.sf(epsilon / mu + mu / 2)) - delta

    exact = brentq(excess, 1, 1000)
    found = noise_for(epsilon, PrivateSteps(1.0, num_steps, delta))
    assert exact <= found.noise_multiplier <= 1.001 * exact


def test_more_steps_more_documents_and_a_smaller_delta_need_more_noise() -> None:
    base = PrivateSteps(0.01, 50, 1e-6)
    more = [PrivateSteps(0.01, 75, 1e-6), PrivateSteps(0.015, 50, 1e-6), PrivateSteps(0.01, 50, 1e-7)]
    for search in (noise_for, noise_by_rdp):
        least = search(2.0, base).noise_multiplier
        assert all(search(2.0, steps).noise_multiplier > 1.01 * least for steps in more)


def test_a_tiny_epsilon_is_told_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 0.01, Opacus's default error, every epsilon here is the same."""
    monkeypatch.setattr("dpprof.privacy.prv.MOST_POINTS", 2**20)
    steps = PrivateSteps(0.001, 10, 1e-6)
    some, less = (epsilon_of(noise, steps).epsilon for noise in (4.0, 8.0))
    assert 0 < less < 0.6 * some
    assert some < 0.01


def test_what_cannot_be_asked_is_refused() -> None:
    for epsilon in (0.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match=r"^epsilon: got"):
            noise_for(epsilon, STEPS[0])
    with pytest.raises(ConfigError, match=r"^noise_multiplier: got '-1.0'"):
        epsilon_of(-1.0, STEPS[0])
