"""The search for the least noise, on curves whose answer is known."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

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


def power_law(power: int) -> Curve:
    return lambda noise: 3 * noise**-power


def stairs(width: float) -> Curve:
    return lambda noise: 1.56 * math.exp(-math.floor(math.log(noise) / width) * width)


def steep_below(noise: float) -> float:
    """And flat above, as with a tiny sample rate."""
    return 0.02 / noise + math.exp(min(40 * (1 - noise), 300))


# Curve, target, start, the most questions, and what else the search is told.
CASES: list[tuple[Curve, float, float, float, dict[str, Any]]] = [
    *(
        (power_law(power), 0.5, start, 8 + abs(math.log2(start / 6 ** (1 / power))), {})
        for power, start in product([1, 2, 7], [1e-3, 0.9, 1.0, 3.0, 500.0])
    ),
    *(
        (stairs(width), target, 1.0, 30, {"is_smooth": False})
        for width, target in product([1e-4, 3e-3, 0.05, 0.3], [0.017, 0.9, 3.0185, 71.0])
    ),
    (steep_below, 0.1, 3.0, 14, {}),
    (lambda noise: 0.14 + 1 / noise**2, 0.1401, 1.0, 20, {"floor": 0.14}),
    (lambda noise: 2.0 if noise < math.pi else 0.3, 1.0, 1.0, 20, {}),  # a jump
    (lambda noise: math.inf if noise < 1 else 2 / noise, 1.0, 0.1, 20, {}),
]


@pytest.mark.parametrize(("curve", "target", "start", "most", "told"), CASES)
def test_it_is_the_least_to_the_precision(
    curve: Curve, target: float, start: float, most: float, told: dict[str, Any]
) -> None:
    questions, ask = asked(curve)
    noise, epsilon, _ = least_noise(ask, target, start=start, **told)
    assert epsilon == curve(noise) <= target < curve(noise / (1 + 1.001 * PRECISION))
    assert len(questions) <= most


def test_a_steepness_that_is_known_saves_questions() -> None:
    questions, curve = asked(lambda noise: noise**-9)
    found = least_noise(curve, target=1.0, start=1.0005, steepness=9.0)
    assert found == pytest.approx((1.0005, 1.0005**-9, 9.0))
    assert len(questions) == 1
    assert least_noise(curve, target=1.0, start=1.003).steepness == pytest.approx(9)
    assert 1 <= least_noise(curve, target=1.0, start=1.0005).noise <= 1 + PRECISION
    assert len(questions) > 4


def test_a_first_answer_that_is_close_is_not_yet_the_least() -> None:
    questions, curve = asked(lambda noise: 1 / noise)
    noise, _, _ = least_noise(curve, target=1.0, start=1.0001, is_smooth=False)
    assert 1 <= noise <= 1 + PRECISION
    assert len(questions) == 2
    assert least_noise(curve, target=1.0, start=1.0001).noise == pytest.approx(1.0001)
    assert len(questions) == 3


def test_no_noise_is_enough() -> None:
    questions, curve = asked(lambda noise: 1 + 1 / noise)
    with pytest.raises(AccountingError, match=r"no noise multiplier up to 1e\+06 was found for epsilon 1$"):
        least_noise(curve, target=1.0, start=1.0)
    assert len(questions) <= 60
