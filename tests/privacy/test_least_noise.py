"""The search for the least noise, on curves whose answer is known."""

import math
from collections.abc import Callable

import pytest

from dpprof.errors import AccountingError
from dpprof.privacy.search import PRECISION, least_noise

Curve = Callable[[float], float]


def asked(curve: Curve) -> tuple[list[float], Curve]:
    """The curve, and every noise that it is asked about."""
    questions: list[float] = []

    def ask(noise: float) -> float:
        questions.append(noise)
        return curve(noise)

    return questions, ask


@pytest.mark.parametrize("power", [1, 2, 7])
@pytest.mark.parametrize("start", [1e-3, 0.9, 1.0, 3.0, 500.0])
def test_a_power_law(power: int, start: float) -> None:
    questions, curve = asked(lambda noise: 3 * noise**-power)
    noise, epsilon, _ = least_noise(curve, target=0.5, start=start)
    least = 6 ** (1 / power)
    assert least <= noise <= least * (1 + PRECISION)
    assert epsilon == 3 * noise**-power <= 0.5
    assert len(questions) <= 8 + abs(math.log2(start / least))


def test_steep_below_and_flat_above_as_with_a_tiny_sample_rate() -> None:
    def curve(noise: float) -> float:
        return 0.02 / noise + math.exp(min(40 * (1 - noise), 300))

    questions, ask = asked(curve)
    noise, epsilon, _ = least_noise(ask, target=0.1, start=3.0)
    assert epsilon <= 0.1 < curve(noise * (1 - PRECISION))
    assert len(questions) <= 14


def test_a_steepness_that_is_known_saves_questions() -> None:
    questions, curve = asked(lambda noise: noise**-9)
    found = least_noise(curve, target=1.0, start=1.0005, steepness=9.0)
    assert found == pytest.approx((1.0005, 1.0005**-9, 9.0))
    assert len(questions) == 1
    assert least_noise(curve, target=1.0, start=1.003).steepness == pytest.approx(9)
    assert 1 <= least_noise(curve, target=1.0, start=1.0005).noise <= 1 + PRECISION
    assert len(questions) > 4


def test_what_is_above_a_floor() -> None:
    noise, epsilon, _ = least_noise(lambda noise: 0.14 + 1 / noise**2, target=0.1401, start=1.0, floor=0.14)
    assert epsilon <= 0.1401
    assert 100 <= noise <= 100 * (1 + PRECISION)


def test_a_first_answer_that_is_close_is_not_yet_the_least() -> None:
    questions, curve = asked(lambda noise: 1 / noise)
    noise, _, _ = least_noise(curve, target=1.0, start=1.0001, is_smooth=False)
    assert 1 <= noise <= 1 + PRECISION
    assert len(questions) == 2
    assert least_noise(curve, target=1.0, start=1.0001).noise == pytest.approx(1.0001)
    assert len(questions) == 3


@pytest.mark.parametrize("width", [1e-4, 3e-3, 0.05, 0.3])
@pytest.mark.parametrize("target", [0.017, 0.9, 3.0185, 71.0])
def test_on_stairs_the_lowest_end_of_a_stair(width: float, target: float) -> None:
    questions, curve = asked(lambda noise: 1.56 * math.exp(-math.floor(math.log(noise) / width) * width))
    noise, epsilon, _ = least_noise(curve, target, start=1.0, is_smooth=False)
    assert epsilon <= target < curve(noise / (1 + PRECISION))
    assert len(questions) <= 30


def test_at_a_jump_the_noise_is_what_is_found() -> None:
    questions, curve = asked(lambda noise: 2.0 if noise < math.pi else 0.3)
    noise, epsilon, _ = least_noise(curve, target=1.0, start=1.0)
    assert math.pi <= noise <= math.pi * (1 + PRECISION)
    assert epsilon == 0.3
    assert len(questions) <= 20


def test_too_little_noise_may_have_an_endless_epsilon() -> None:
    noise, _, _ = least_noise(lambda noise: math.inf if noise < 1 else 2 / noise, target=1.0, start=0.1)
    assert 2 <= noise <= 2 * (1 + PRECISION)


def test_no_noise_is_enough() -> None:
    questions, curve = asked(lambda noise: 1 + 1 / noise)
    with pytest.raises(AccountingError, match=r"no noise multiplier up to 1e\+06 was found for epsilon 1$"):
        least_noise(curve, target=1.0, start=1.0)
    assert len(questions) <= 60
