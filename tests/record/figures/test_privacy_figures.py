import math

import pytest

from dpprof.record.figures.names import DELTA, EPSILON, NOISE, RATE, STEPS, metrics, privacy_metrics
from dpprof.record.figures.privacy import privacy_words, rounded_up
from dpprof.record.record import PrivacyResult


def test_figures_and_words_of_a_guarantee() -> None:
    found = PrivacyResult(1.0, 0.01, 3000, 1e-6, 2.00001, "prv", "", ["batches are fixed"])
    assert metrics(privacy_metrics(found)) == {
        EPSILON: 2.00001, DELTA: 1e-6, NOISE: 1.0, RATE: 0.01, STEPS: 3000
    }  # fmt: skip
    assert privacy_words(found) == (
        "epsilon 2.001 at delta 1e-06 by PRV; 3,000 steps at sample rate 0.01 with noise multiplier 1; "
        "batches are fixed"
    )


def test_without_an_epsilon_there_is_no_figure() -> None:
    found = PrivacyResult(0.0, 0.01, 3000, 1e-6, why_none="noise is off")
    assert set(metrics(privacy_metrics(found))) == {DELTA, NOISE, RATE, STEPS}
    assert privacy_words(found).startswith("no epsilon: noise is off; 3,000 steps")


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [(0.0, "0"), (2.0, "2"), (8.0001, "8.001"), (0.23544, "0.2355"), (0.2355, "0.2355"), (2949.13, "2950")],
)
def test_epsilon_is_never_shown_as_less(epsilon: float, shown: str) -> None:
    assert rounded_up(epsilon) == shown
    assert float(shown) >= epsilon or math.isclose(float(shown), epsilon)
