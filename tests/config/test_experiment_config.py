import dataclasses
from typing import Any

import pytest

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.poisson import largest_batch
from dpprof.errors import ConfigError


def test_an_experiment_is_measured_or_estimated() -> None:
    measured, estimated = ExperimentConfig(), ExperimentConfig(how=EstimatingConfig(target="T4"))
    assert (measured.is_estimate, estimated.is_estimate) == (False, True)
    assert measured.measuring == MeasuringConfig()
    assert estimated.estimating.target == "T4"
    with pytest.raises(AssertionError, match="an estimate is not measured"):
        _ = estimated.measuring
    with pytest.raises(AssertionError, match="it is measured, not estimated"):
        _ = measured.estimating


def test_an_estimate_counts_nothing() -> None:
    assert ExperimentConfig(how=MeasuringConfig(counters="auto")).counters == "auto"
    assert ExperimentConfig(how=EstimatingConfig()).counters == "off"


def test_an_estimate_needs_no_cuda() -> None:
    with pytest.raises(ConfigError, match=r"^device: got 'cuda'"):
        ExperimentConfig(device="cuda").resolve(cuda_available=False)
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
    ],
)
def test_parts_that_do_not_go_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ExperimentConfig(**settings)
    assert str(refused.value).startswith(message)


def test_the_batch_of_an_estimate_is_one_that_few_sampled_ones_exceed() -> None:
    fixed = ExperimentConfig(batch_size=7, how=EstimatingConfig(poisson_tail=1e-3))
    assert fixed.estimated_batch == 7
    sampled = dataclasses.replace(fixed, poisson_sampling=True)
    assert sampled.estimated_batch == largest_batch(7, 1e-3) > 7
