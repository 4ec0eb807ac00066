"""An experiment from its parts, and the largest of its Poisson-sampled batches."""

import dataclasses
from typing import Any

import pytest
from conftest import refusal
from scipy.stats import poisson

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig, largest_batch
from dpprof.config.measuring import MeasuringConfig


def test_an_estimate_needs_no_cuda() -> None:
    for device in ("auto", "cuda"):
        estimated = ExperimentConfig(device=device, how=EstimatingConfig()).resolve(cuda_available=False)
        assert (estimated.device, estimated.model_size) == ("cuda", "1b")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device": "cpu", "how": EstimatingConfig(target="T4")}, "target: got 'T4', allowed: none with"),
        (
            {"poisson_sampling": True, "how": MeasuringConfig(warmup_steps=2)},
            "warmup_steps: got '2', allowed: 3 or more with poisson_sampling=true",
        ),
        (
            {"poisson_sampling": True, "accumulation_steps": 2, "how": EstimatingConfig()},
            "accumulation_steps: got '2', allowed: 1 with poisson_sampling=true",
        ),
        (
            {"parallel": "fsdp2", "optimizer": "adafactor"},
            "optimizer: got 'adafactor', allowed: another with fsdp2: torch's cannot step sharded parameters",
        ),
    ],
)
def test_parts_that_do_not_go_together(settings: dict[str, Any], message: str) -> None:
    assert refusal(ExperimentConfig, **settings).startswith(message)


def test_the_batch_of_an_estimate_is_one_that_few_sampled_ones_exceed() -> None:
    fixed = ExperimentConfig(batch_size=7, how=EstimatingConfig(poisson_tail=1e-3))
    assert fixed.estimated_batch == 7
    sampled = dataclasses.replace(fixed, poisson_sampling=True)
    assert sampled.estimated_batch == largest_batch(7, 1e-3) > 7


@pytest.mark.parametrize("expected", [0.5, 4, 1000, 250_000])
@pytest.mark.parametrize("tail", [0.5, 1e-6, 1e-12])
def test_no_more_than_the_tail_exceeds_the_largest_batch(expected: float, tail: float) -> None:
    size = largest_batch(expected, tail)
    assert poisson.sf(size, expected) <= tail * (1 + 1e-6)
    assert size == 0 or poisson.sf(size - 1, expected) > tail * (1 - 1e-6)
