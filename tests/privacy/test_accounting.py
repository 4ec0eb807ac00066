"""Noise and epsilon, against Opacus's own search and each other."""

import math
from collections.abc import Callable
from functools import partial

import pytest
from covering import sampled
from opacus.accountants.utils import get_noise_multiplier

from dpprof.errors import ConfigError
from dpprof.privacy.accounting import epsilon_of, noise_by_rdp, noise_for
from dpprof.privacy.guarantee import PRV, RDP, PrivateSteps, default_delta
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
