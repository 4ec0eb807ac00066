"""What a whole training is, and batches that its data set is too small for."""

import pytest
from conftest import refusal

from dpprof.config.budget import BudgetConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat
from dpprof.config.grid import build_grid
from dpprof.errors import ConfigError

PRIVATE = {"trainer": "bk", "dataset_size": 100, "device": "cpu"}


def test_steps_come_from_epochs_or_as_they_are() -> None:
    assert BudgetConfig(dataset_size=50_000, epochs=3).num_steps(32) == 4688
    assert BudgetConfig(dataset_size=50_000, epochs=0.001).num_steps(256) == 1
    assert BudgetConfig(dataset_size=50_000, steps=7).num_steps(32) == 7
    with pytest.raises(ConfigError, match="steps: got '7', allowed: 0 with epochs"):
        BudgetConfig(steps=7, epochs=2)


def test_a_logical_batch_is_that_of_all_ranks() -> None:
    config = ExperimentConfig(batch_size=3, accumulation_steps=5, parallel="ddp", world_size=2)
    assert config.logical_batch == 30


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 101}, "batch_size: got '101', allowed: at most dataset_size, 100"),
        (
            {"batch_size": 6, "accumulation_steps": 19},
            "batch_size: got '6', allowed: at most dataset_size, 100; the logical batch of all ranks has 114",
        ),
    ],
)
def test_a_batch_of_more_than_the_data_is_refused(settings: dict[str, int], message: str) -> None:
    assert refusal(from_flat({**PRIVATE, **settings}).resolve, cuda_available=False) == message
    from_flat({**PRIVATE, **settings, "trainer": "standard"}).resolve(cuda_available=False)
    from_flat({**PRIVATE, "batch_size": 100}).resolve(cuda_available=False)


def test_a_sweep_checks_its_own_batches_and_foresees_without_a_budget() -> None:
    given = {"device": "cpu", "batch_sizes": "1,2", "dataset_size": 5, "trainers": "flat"}
    grid = build_grid(given, cuda_available=lambda: False)
    assert {config.budget for config in grid.experiments.values()} == {BudgetConfig(dataset_size=5)}
    with pytest.raises(ConfigError, match="batch_size: got '6'"):
        build_grid(given | {"batch_sizes": "1,6"}, cuda_available=lambda: False)
    default = build_grid({"device": "cpu", "dataset_size": 10**6}, cuda_available=lambda: False)
    assert {config.budget for config in default.foreseen.values()} == {BudgetConfig()}
