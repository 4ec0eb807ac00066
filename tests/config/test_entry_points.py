"""The settings that only some commands have."""

import re
from typing import Any

import pytest
from conftest import refusal

from dpprof.config.entry_points import FitConfig, PlanConfig, SweepConfig
from dpprof.errors import ConfigError
from dpprof.vocabulary.settings import take


@pytest.mark.parametrize(
    ("given", "expected"),
    [("auto", (512, 1024, 2048, 4096)), ("64,32,64", (64, 32)), ("100:900", (100, 200, 400, 800))],
)
def test_logical_batches_are_a_list_or_a_range(given: str, expected: tuple[int, ...]) -> None:
    assert PlanConfig(logical_batches=given).batches == expected


def test_a_small_data_set_has_small_batches() -> None:
    assert PlanConfig(dataset_size=5000).batches == (32, 64, 128, 256)
    assert PlanConfig(dataset_size=5000, epochs=4).batches == (64, 128, 256, 512)
    assert PlanConfig(dataset_size=5000, steps=9).batches == (512, 1024, 2048)
    assert PlanConfig(dataset_size=5000, min_steps=1).batches == (512, 1024, 2048)
    assert PlanConfig(dataset_size=100).batches == (32,)
    assert PlanConfig(dataset_size=10).batches == (5,)
    assert PlanConfig(dataset_size=8192, min_steps=16).batches == (512, 1024, 2048, 4096)


def test_batches_double_up_to_half_of_the_data_and_the_least_number_of_steps() -> None:
    assert PlanConfig(dataset_size=10**6, steps=500).next_batch([512, 4096]) == 8192
    assert PlanConfig(dataset_size=16_000, steps=500).next_batch([4096]) is None
    assert PlanConfig(dataset_size=10**6).next_batch([2048]) == 4096
    assert PlanConfig(dataset_size=10**6, min_steps=300).next_batch([2048]) is None
    assert PlanConfig(dataset_size=10**6, logical_batches="512,1024").next_batch([1024]) is None


@pytest.mark.parametrize(
    ("name", "given", "allowed"),
    [
        *(("logical_batches", text, "up to 24 whole numbers") for text in ("0", "8:4", "a", "1:2:3")),
        ("logical_batches", "1:16777216", "up to 24 whole numbers"),
        *(("headroom", text, "a percentage from 0% to below 100%") for text in ("10", "-1%", "100%", "")),
    ],
)
def test_what_is_no_list_or_share_is_refused(name: str, given: str, allowed: str) -> None:
    assert re.match(rf"{name}: got .*, allowed: {allowed}", refusal(PlanConfig, **{name: given}))


def test_the_most_doublings() -> None:
    assert len(PlanConfig(logical_batches="1:8388608").batches) == 24


def test_the_data_set_must_be_large_enough() -> None:
    with pytest.raises(ConfigError, match="at most dataset_size"):
        PlanConfig(dataset_size=100).check_against(101)
    PlanConfig(dataset_size=100).check_against(100)


def test_every_device_gets_a_sample() -> None:
    asked = PlanConfig(dataset_size=10, num_devices=64)
    with pytest.raises(ConfigError, match="num_devices: got '64', allowed: at most the logical batch, 5"):
        asked.check_against(*asked.batches)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target_delta": 0.5}, "target_delta: got '0.5', allowed: .* publishing 50,000 of the samples"),
        ({"target_epsilon": 20.5}, "target_epsilon: got '20.5', allowed: .* 1e9, times as likely"),
    ],
)
def test_weak_privacy_is_refused_unless_accepted(given: dict[str, float], said: str) -> None:
    settings: dict[str, Any] = {"dataset_size": 100_000, **given}
    with pytest.raises(ConfigError, match=said):
        PlanConfig(**settings).check_against(512)
    PlanConfig(allow_weak_privacy=True, **settings).check_against(512)
    PlanConfig(dataset_size=100_000, target_delta=0.09, target_epsilon=20).check_against(512)


@pytest.mark.parametrize(
    ("headroom", "usable"), [("10%", 0.9), ("0%", 1.0), ("2.5%", 0.975), ("99%", 0.01), (" 5% ", 0.95)]
)
def test_headroom_is_a_percentage(headroom: str, usable: float) -> None:
    assert take(FitConfig, {"headroom": headroom})[0].usable == pytest.approx(usable)


def test_a_sweep_name_may_have_blanks_and_letters_of_any_language() -> None:
    assert SweepConfig(sweep_name="Größe 1.2-b").sweep_name == "Größe 1.2-b"
