"""Where accountants cannot answer, or answer wrongly: each failure, and its sentence."""

import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from example_privacy import pld_epsilon
from opacus.accountants import PRVAccountant
from opacus.accountants.analysis.prv import PoissonSubsampledGaussianPRV

from dpprof.errors import AccountingError
from dpprof.privacy.accounting import epsilon_of, noise_by_rdp, noise_for
from dpprof.privacy.guarantee import PRV, RDP, PrivateSteps
from dpprof.privacy.prv import MOST_POINTS, affordable_error, num_points, prv_epsilon
from dpprof.privacy.rdp import rdp_epsilon, rdp_floor

# Opacus says so whenever it is asked for RDP with much noise.
pytestmark = pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")
STEPS, TOO_MANY = PrivateSteps(0.01, 100, 1e-6), PrivateSteps(0.001, 10**8, 1e-6)
# From PRV's own answer, the noise that it is asked about, its error and delta to another answer.
Answer = Callable[[float, float, float, float], float]


def answer_with(monkeypatch: pytest.MonkeyPatch, answer: Answer, *, asked: bool = True) -> None:
    """Let PRV answer so; its own answer is NaN if it is not to be asked."""
    own = PRVAccountant.get_epsilon

    def get_epsilon(self: PRVAccountant, delta: float, *, eps_error: float, delta_error: float) -> float:
        ((noise, _, _),) = self.history
        found = own(self, delta, eps_error=eps_error, delta_error=delta_error) if asked else math.nan
        return answer(found, noise, eps_error, delta)

    monkeypatch.setattr(PRVAccountant, "get_epsilon", get_epsilon)


@pytest.mark.parametrize(("delta", "floor"), [(1e-3, 0.029), (1e-6, 0.140), (1e-9, 0.251)])
def test_the_floor_of_rdp_is_what_endless_noise_leaves(delta: float, floor: float) -> None:
    assert rdp_floor(delta) == pytest.approx(floor, abs=5e-4)
    assert rdp_epsilon(1e5, PrivateSteps(0.01, 100, delta)) == pytest.approx(rdp_floor(delta), abs=1e-6)


def test_rdp_says_which_epsilon_it_cannot_certify() -> None:
    said = r"^RDP cannot certify epsilon 0\.1 at delta 1e-06: its orders end at 63, .* 0\.14$"
    with pytest.raises(AccountingError, match=said):
        noise_by_rdp(0.1, STEPS)
    assert noise_by_rdp(0.1401, STEPS).epsilon <= 0.1401
    assert noise_for(0.1, STEPS).accountant == PRV
    said = r"^PRV cannot tell epsilon 0\.1 .*; and RDP cannot certify .* 63"
    with pytest.raises(AccountingError, match=said):
        noise_for(0.1, TOO_MANY)


@pytest.mark.parametrize("noise", [0.4, 1.5, 30.0])
@pytest.mark.parametrize("error", [0.1, 0.003])
def test_the_length_of_a_grid_is_known_before(noise: float, error: float) -> None:
    domain = PRVAccountant()._get_domain(
        prvs=[PoissonSubsampledGaussianPRV(STEPS.sample_rate, noise)],
        num_self_compositions=[STEPS.steps],
        eps_error=error,
        delta_error=STEPS.delta / 1000,
    )
    assert domain.size == num_points(noise, STEPS, error)
    affordable = affordable_error(noise, STEPS, error)
    assert error / 2 < affordable <= error
    assert math.log2(num_points(noise, STEPS, affordable)).is_integer()


def test_a_grid_that_takes_gigabytes_is_not_begun() -> None:
    said = r"^PRV would need 1\.2e\+11 points, which take 8\.8e\+12 bytes or more$"
    with pytest.raises(AccountingError, match=said):
        prv_epsilon(1.0, PrivateSteps(0.01, 10**6, 1e-6), 1e-5)


@pytest.mark.parametrize(("sample_rate", "num_steps"), [(1e-5, 10**6), (0.01, 1000), (0.9, 1)])
def test_no_search_asks_for_a_longer_grid(
    monkeypatch: pytest.MonkeyPatch, num_steps: int, sample_rate: float
) -> None:
    steps = PrivateSteps(sample_rate, num_steps, 1e-6)
    lengths = []

    def noted(own: float, noise: float, error: float, delta: float) -> float:
        lengths.append(num_points(noise, steps, error))
        return rdp_epsilon(noise, steps)

    answer_with(monkeypatch, noted, asked=False)
    for epsilon in (0.2, 3.0, 300.0):
        noise_for(epsilon, steps)
    assert lengths
    assert max(lengths) <= MOST_POINTS


def test_too_many_steps_for_a_grid_fall_back_to_rdp() -> None:
    found = noise_for(0.2, TOO_MANY)
    assert replace(found, note="") == noise_by_rdp(0.2, TOO_MANY)
    assert found.note.startswith("PRV cannot tell epsilon 0.2 of 100,000,000 steps: the longest grid")
    assert found.note.endswith("RDP answers in its place: a looser bound")
    assert epsilon_of(found.noise_multiplier, TOO_MANY).accountant == RDP


def test_a_coarse_grid_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpprof.privacy.prv.MOST_POINTS", 2**16)
    steps = PrivateSteps(0.001, 300, 1e-6)
    found = noise_for(0.3, steps)
    error = affordable_error(found.noise_multiplier, steps, 0.0)
    assert found.accountant == PRV
    assert 0.01 < error / 0.3 < 0.1
    assert found.note == f"PRV's grid is coarse: the true epsilon may be up to {2 * error:.2g} less"


def test_rounding_beyond_delta_is_foreseen_where_opacus_answers_far_too_much() -> None:
    noise, steps = 107.7, PrivateSteps(4.87e-6, 68_555, 6.6e-12)
    opacus = PRVAccountant()
    opacus.history = [(noise, steps.sample_rate, steps.steps)]
    assert opacus.get_epsilon(steps.delta) > 10 * pld_epsilon(noise, steps, 1e-5)
    found = epsilon_of(noise, steps)
    assert found.accountant == RDP
    said = "PRV cannot account 68,555 steps at delta 6.6e-12: rounding errors alone may be 6e-11. RDP answers"
    assert found.note.startswith(said)


def test_what_rounding_may_take_of_delta_is_kept_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    deltas = set()

    def noted(own: float, noise: float, error: float, delta: float) -> float:
        deltas.add(delta)
        return own

    answer_with(monkeypatch, noted)
    delta, rounding = 6e-12, 1000 * 2**-50
    found = epsilon_of(1.0, PrivateSteps(0.001, 1000, delta))
    assert found.accountant == PRV
    assert found.note == "PRV keeps 15 % of delta for rounding errors"
    asked = [delta - 3 * rounding, delta - rounding, delta + rounding]
    assert sorted(deltas) == pytest.approx(asked, rel=1e-9, abs=0)
    assert epsilon_of(1.0, PrivateSteps(0.001, 1000, 1e-11)).note == ""


def test_so_little_noise_that_numbers_overflow_falls_back() -> None:
    steps = PrivateSteps(0.5, 1000, 1e-5)
    found = noise_for(1000.0, steps)
    assert found.accountant == RDP
    assert found.epsilon == rdp_epsilon(found.noise_multiplier, steps)
    said = r"PRV cannot account noise multiplier 0\.47\d+: its privacy losses reach 1\.\d+e\+03\. RDP answers"
    assert re.match(said, found.note)
    nearly_none = epsilon_of(1e-3, steps)
    assert nearly_none.accountant == RDP
    assert nearly_none.epsilon > 1e6


@pytest.mark.parametrize("fault", [RuntimeError("Discrete mean differs"), MemoryError()])
def test_what_opacus_raises_is_in_the_note(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    def fail(*asked: float) -> float:
        raise fault

    answer_with(monkeypatch, fail)
    for found in (noise_for(1.0, STEPS), epsilon_of(1.0, STEPS)):
        assert found.accountant == RDP
        assert found.note.startswith("PRV failed at noise multiplier ")
        assert f": {type(fault).__name__}: {fault}. RDP answers in its place" in found.note


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda own, *_: math.nan, "PRV answered nan at noise multiplier 1"),
        (lambda own, *_: 13.75, r"PRV answered epsilon 13\.75 where RDP certifies 1\.507"),
        (lambda own, _, error, __: own + 9 * error, r"PRV contradicts itself: epsilon is 0\.\d+ on one grid"),
    ],
)
def test_an_implausible_answer_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, said: str
) -> None:
    answer_with(monkeypatch, answer)
    found = epsilon_of(1.0, STEPS)
    assert found.accountant == RDP
    assert found.epsilon == rdp_epsilon(1.0, STEPS)
    assert re.match(said, found.note)
