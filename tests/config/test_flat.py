import json
from pathlib import Path
from typing import Any

import pytest
from conftest import refusal

from dpprof.config.budget import BudgetConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat, to_flat
from dpprof.config.measuring import MeasuringConfig

KEPT = sorted((Path(__file__).parents[1] / "written_by_0_3").glob("*/*/config.json"))
# Settings that came after these folders.
LATER = {"weights_dtype": "auto", "adapter_dtype": "fp32", "channels_last": False}
MEASURED = {"batch_size": 2, "passes": "clean,memory", "measured_steps": 4, "counters": "auto"}
ESTIMATED = {"batch_size": 2, "passes": "estimate", "device_memory_gib": 0.5, "savings": False}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_files_are_as_they_were(path: Path) -> None:
    """Settings that came later have their defaults."""
    flat = json.loads(path.read_text())
    found = to_flat(from_flat(flat))
    assert {name: value for name, value in found.items() if name in flat} == flat
    assert [name for name in found if name in flat] == list(flat)
    assert {name: found[name] for name in found.keys() - flat.keys()} == LATER


def test_passes_tell_how_and_what_the_other_way_has_is_read_over() -> None:
    measured = MeasuringConfig(measured_steps=4, passes="clean,memory", counters="auto")
    assert from_flat(MEASURED).how == measured
    assert from_flat(ESTIMATED).how == EstimatingConfig(device_memory_gib=0.5, savings=False)
    assert from_flat({}) == ExperimentConfig()
    assert from_flat({"passes": "estimate"}) == ExperimentConfig(how=EstimatingConfig())
    assert from_flat(MEASURED | {"target": "T4", "savings": False}) == from_flat(MEASURED)
    assert from_flat(ESTIMATED | {"warmup_steps": 9, "counters": "ncu"}) == from_flat(ESTIMATED)


def test_an_estimate_has_no_budget() -> None:
    budget = {"dataset_size": 1000, "epochs": 2.5, "target_delta": 1e-5}
    assert from_flat(MEASURED | budget).budget == BudgetConfig(**budget)  # type: ignore[arg-type]
    assert to_flat(from_flat(MEASURED | budget)).items() >= budget.items()
    assert from_flat(ESTIMATED | budget) == from_flat(ESTIMATED)


def test_what_another_package_trained_can_be_read_without_it() -> None:
    config = from_flat({"trainer": "Else-Trainer", "workload": "elsewhere", "depth": 3})
    assert (config.trainer, config.workload, config.options) == ("Else-Trainer", "elsewhere", {"depth": 3})
    assert to_flat(config)["depth"] == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"colour": "red"}, "unknown option 'colour', allowed: trainer, batch_size, "),
        ({"lr": None}, "lr: got 'None', allowed: a number above 0"),
        ({"trainer": "../a"}, "trainer: got '../a', allowed: standard (StandardTrainer), "),
        ({"workload": "../a"}, "workload: got '../a', allowed: "),
        ({"epochs": 3.0}, "epochs: got '3.0', allowed: 1 unless dataset_size is given"),
        ({"target_delta": 1e-6}, "target_delta: got '1e-06', allowed: 0 unless dataset_size is given"),
        ({"trainer": 5}, "trainer: got '5', allowed: standard (StandardTrainer), "),
    ],
)
def test_refusals(values: dict[str, Any], message: str) -> None:
    assert refusal(from_flat, values).startswith(message)
