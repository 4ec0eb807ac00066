"""What a plan may be asked."""

import pytest

from dpprof.config.plan import PlanConfig
from dpprof.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "expected"),
    [("auto", (512, 1024, 2048, 4096)), ("64,32,64", (64, 32)), ("100:900", (100, 200, 400, 800))],
)
def test_logical_batches_are_a_list_or_a_range(given: str, expected: tuple[int, ...]) -> None:
    assert PlanConfig(logical_batches=given).batches == expected


@pytest.mark.parametrize("given", ["", "0", "-4", "8:4", "a", "1:2:3", "1.5"])
def test_other_logical_batches_are_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="logical_batches: got"):
        PlanConfig(logical_batches=given)


def test_a_small_data_set_has_small_batches() -> None:
    assert PlanConfig(dataset_size=5000).batches == (512, 1024, 2048)
    assert PlanConfig(dataset_size=100).batches == (50,)
    assert PlanConfig(dataset_size=8192).batches == (512, 1024, 2048, 4096)


def test_more_doublings_than_a_plan_takes_are_refused() -> None:
    assert len(PlanConfig(logical_batches="1:8388608").batches) == 24
    with pytest.raises(ConfigError, match="up to 24 whole numbers"):
        PlanConfig(logical_batches="1:16777216")


def test_an_efficiency_is_two_shares() -> None:
    assert PlanConfig(efficiency="").efficiencies is None
    assert PlanConfig(efficiency="0.3-0.6").efficiencies == (0.3, 0.6)


@pytest.mark.parametrize("given", ["0", "0.4", "0.4-0.4", "0.6-0.3", "0.5-2", "0-0.5", "half", "0.3-"])
def test_other_efficiencies_are_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"efficiency: got .*, allowed: two shares"):
        PlanConfig(efficiency=given)


def test_steps_come_from_epochs_unless_given() -> None:
    assert PlanConfig(dataset_size=10_000, epochs=3).num_steps(100) == 300
    assert PlanConfig(dataset_size=10_000, steps=7).num_steps(100) == 7
    with pytest.raises(ConfigError, match="steps: got '7', allowed: 0 with epochs"):
        PlanConfig(dataset_size=10_000, steps=7, epochs=2)


def test_the_data_set_must_be_given_and_large_enough() -> None:
    with pytest.raises(ConfigError, match="dataset_size: it is missing"):
        PlanConfig().check_against(1)
    with pytest.raises(ConfigError, match="at most half of dataset_size"):
        PlanConfig(dataset_size=100).check_against(51)
