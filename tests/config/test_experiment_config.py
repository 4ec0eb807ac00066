"""An experiment from its parts: what goes together, its budget, and the largest of its sampled batches."""

import dataclasses
from typing import Any

import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import poisson

from dpprof.config.budget import BudgetConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig, largest_batch
from dpprof.config.flat import from_flat
from dpprof.config.grid import build_grid
from dpprof.config.measuring import PASS_NAMES, MeasuringConfig

ESTIMATED = EstimatingConfig()
OTHERS = "alone, pace, memory, trace, ceilings, ledger, gradient_check, verify"


def test_an_estimate_needs_no_cuda() -> None:
    for device in ("auto", "cuda"):
        estimated = ExperimentConfig(device=device, how=ESTIMATED).resolve(cuda_available=False)
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
            {"poisson_sampling": True, "accumulation_steps": 2, "how": ESTIMATED},
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


def test_steps_come_from_epochs_or_as_they_are() -> None:
    assert BudgetConfig(dataset_size=50_000, epochs=3).num_steps(32) == 4688
    assert BudgetConfig(dataset_size=50_000, epochs=0.001).num_steps(256) == 1
    assert BudgetConfig(dataset_size=50_000, steps=7).num_steps(32) == 7
    assert refusal(BudgetConfig, steps=7, epochs=2).startswith("steps: got '7', allowed: 0 with epochs")


def test_a_logical_batch_is_that_of_all_ranks() -> None:
    config = ExperimentConfig(batch_size=3, accumulation_steps=5, parallel="ddp", world_size=2)
    assert config.logical_batch == 30


def test_a_batch_of_more_than_the_data_is_refused() -> None:
    private = {"trainer": "bk", "dataset_size": 100, "device": "cpu"}
    accumulated = {"batch_size": 6, "accumulation_steps": 19}
    allowed = "allowed: at most dataset_size, 100"
    for settings, message in (
        ({"batch_size": 101}, f"batch_size: got '101', {allowed}"),
        (accumulated, f"batch_size: got '6', {allowed}; the logical batch of all ranks has 114"),
    ):
        assert refusal(from_flat({**private, **settings}).resolve, cuda_available=False) == message
        from_flat({**private, **settings, "trainer": "standard"}).resolve(cuda_available=False)
    from_flat({**private, "batch_size": 100}).resolve(cuda_available=False)


def test_a_sweep_checks_its_own_batches_and_foresees_without_a_budget() -> None:
    given = {"device": "cpu", "batch_sizes": "1,2", "dataset_size": 5, "trainers": "flat"}
    grid = build_grid(given, cuda_available=lambda: False)
    assert {config.budget for config in grid.experiments.values()} == {BudgetConfig(dataset_size=5)}
    said = refusal(build_grid, given | {"batch_sizes": "1,6"}, cuda_available=lambda: False)
    assert said.startswith("batch_size: got '6'")
    default = build_grid({"device": "cpu", "dataset_size": 10**6}, cuda_available=lambda: False)
    assert {config.budget for config in default.foreseen.values()} == {BudgetConfig()}


@given(st.permutations(PASS_NAMES), st.integers(1, len(PASS_NAMES)), st.sampled_from([",", ", ", " ,"]))
def test_passes_run_in_their_fixed_order(order: list[str], count: int, comma: str) -> None:
    asked = {*order[:count], "clean"}
    expected = tuple(name for name in f"clean, {OTHERS}".split(", ") if name in asked)
    assert MeasuringConfig(passes=comma.join(asked)).pass_names == expected


@pytest.mark.parametrize("passes", ["memory", "clean,leak", "clean,", "", "estimate"])
def test_passes_without_the_clean_one_or_unknown_ones_are_refused(passes: str) -> None:
    shown = f"'{passes}'" if passes else "an empty text"
    allowed = f"clean, and with it any of {OTHERS}"
    assert refusal(MeasuringConfig, passes=passes) == f"passes: got {shown}, allowed: {allowed}"


def test_counter_metrics_are_refused_where_nothing_is_counted() -> None:
    said = "counter_metrics: got 'full', allowed: basic, or with it counters=auto"
    assert refusal(MeasuringConfig, counter_metrics="full") == said
    assert MeasuringConfig(counter_metrics="full", counters="auto").counter_metrics == "full"
    assert "'nonsense'" in refusal(MeasuringConfig, counter_metrics="nonsense", counters="auto")
