import pytest

from dpprof.errors import ConfigError
from dpprof.privacy.guarantee import PrivateSteps, default_delta


def test_delta_is_a_power_of_ten_and_at_most_a_tenth_of_one_document() -> None:
    for num_documents, delta in ((1, 1e-1), (7, 1e-2), (50_000, 1e-6), (100_000, 1e-6), (100_001, 1e-7)):
        assert default_delta(num_documents) == delta
        assert delta <= 1 / (10 * num_documents) < 10 * delta
    with pytest.raises(ConfigError, match="num_documents"):
        default_delta(0)


@pytest.mark.parametrize(
    ("sample_rate", "steps", "delta", "name"),
    [
        (0.0, 1, 0.1, "sample_rate"),
        (float("nan"), 1, 0.1, "sample_rate"),
        (0.1, 0, 0.1, "steps"),
        (0.1, 1, 0.0, "delta"),
        (0.1, 1, 1.0, "delta"),
    ],
)
def test_numbers_out_of_range_are_refused(sample_rate: float, steps: int, delta: float, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: got .*, allowed: a .*number"):
        PrivateSteps(sample_rate, steps, delta)
