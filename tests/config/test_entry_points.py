"""The settings that only some commands have."""

import re
from typing import Any

import pytest
from conftest import refusal

from dpprof.config.entry_points import FitConfig, PlanConfig, SweepConfig
from dpprof.vocabulary.settings import take


@pytest.mark.parametrize(
    ("settings", "batches"),
    [
        ({"logical_batches": "auto"}, (512, 1024, 2048, 4096)),
        ({"logical_batches": "64,32,64"}, (64, 32)),
        ({"logical_batches": "100:900"}, (100, 200, 400, 800)),
        ({"logical_batches": "1:8388608"}, tuple(2**n for n in range(24))),
        # Small data sets have small ones.
        ({"dataset_size": 5000}, (32, 64, 128, 256)),
        ({"dataset_size": 5000, "epochs": 4}, (64, 128, 256, 512)),
        ({"dataset_size": 5000, "steps": 9}, (512, 1024, 2048)),
        ({"dataset_size": 5000, "min_steps": 1}, (512, 1024, 2048)),
        ({"dataset_size": 100}, (32,)),
        ({"dataset_size": 10}, (5,)),
        ({"dataset_size": 8192, "min_steps": 16}, (512, 1024, 2048, 4096)),
    ],
)
def test_logical_batches_are_a_list_a_range_or_what_suits_the_data_set(
    settings: dict[str, Any], batches: tuple[int, ...]
) -> None:
    assert PlanConfig(**settings).batches == batches


@pytest.mark.parametrize(
    ("settings", "tried", "following"),
    [
        ({"dataset_size": 10**6, "steps": 500}, [512, 4096], 8192),
        ({"dataset_size": 16_000, "steps": 500}, [4096], None),
        ({"dataset_size": 10**6}, [2048], 4096),
        ({"dataset_size": 10**6, "min_steps": 300}, [2048], None),
        ({"dataset_size": 10**6, "logical_batches": "512,1024"}, [1024], None),
    ],
)
def test_batches_double_up_to_half_of_the_data_and_the_least_number_of_steps(
    settings: dict[str, Any], tried: list[int], following: int | None
) -> None:
    assert PlanConfig(**settings).next_batch(tried) == following


@pytest.mark.parametrize(
    ("name", "given", "allowed"),
    [
        *(("logical_batches", text, "up to 24 whole") for text in ("0", "8:4", "a", "1:2:3", "1:16777216")),
        *(("headroom", text, "a percentage from 0% to below 100%") for text in ("10", "-1%", "100%", "")),
    ],
)
def test_what_is_no_list_or_share_is_refused(name: str, given: str, allowed: str) -> None:
    assert re.match(rf"{name}: got .*, allowed: {allowed}", refusal(PlanConfig, **{name: given}))


def test_the_data_set_must_be_large_enough_and_every_device_gets_a_sample() -> None:
    assert "at most dataset_size" in refusal(PlanConfig(dataset_size=100).check_against, 101)
    PlanConfig(dataset_size=100).check_against(100)
    asked = PlanConfig(dataset_size=10, num_devices=64)
    said = "num_devices: got '64', allowed: at most the logical batch, 5"
    assert said in refusal(asked.check_against, *asked.batches)


def test_weak_privacy_is_refused_unless_accepted() -> None:
    for given, said in (
        ({"target_delta": 0.5}, "target_delta: got '0.5', allowed: .* publishing 50,000 of the samples"),
        ({"target_epsilon": 20.5}, "target_epsilon: got '20.5', allowed: .* 1e9, times as likely"),
    ):
        settings: dict[str, Any] = {"dataset_size": 100_000, **given}
        assert re.search(said, refusal(PlanConfig(**settings).check_against, 512))
        PlanConfig(allow_weak_privacy=True, **settings).check_against(512)
    PlanConfig(dataset_size=100_000, target_delta=0.09, target_epsilon=20).check_against(512)


def test_headroom_is_a_percentage() -> None:
    for headroom, usable in {"10%": 0.9, "0%": 1.0, "2.5%": 0.975, "99%": 0.01, " 5% ": 0.95}.items():
        assert take(FitConfig, {"headroom": headroom})[0].usable == pytest.approx(usable)


def test_a_sweep_name_may_have_blanks_and_letters_of_any_language() -> None:
    assert SweepConfig(sweep_name="Größe 1.2-b").sweep_name == "Größe 1.2-b"
