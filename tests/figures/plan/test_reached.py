"""Shares of a device's rates that earlier runs reached, against arithmetic."""

import dataclasses
from typing import Any

import pytest
from example_results import result

from dpprof.config.devices import DEVICES
from dpprof.figures.plan.reached import Reached
from dpprof.figures.results import Result

H100 = DEVICES["H100"]
MIB = 2**20


def run(step_s: float, trainer: str = "DPSGDTrainer", **settings: Any) -> Result:
    """A run whose step moves 3,350 MiB: 2**20 / 1e6 ms at least on an H100."""
    return result(trainer, step_s=step_s, moved=[("forward", "gemm", H100.bandwidth_gb_per_s)], **settings)


LEAST = MIB / 1e9
CONFIG = run(1.0).config


def test_the_share_is_the_least_time_over_the_median() -> None:
    found = Reached.of({"one": run(4 * LEAST), "two": run(2 * LEAST)}, H100, CONFIG)
    assert found is not None
    assert found.low == pytest.approx(0.25)
    assert found.high == pytest.approx(0.5)
    assert found.names == ("one", "two")


def test_runs_of_the_same_model_tell_most() -> None:
    alike = {"a": run(4 * LEAST), "b": run(3 * LEAST)}
    other = {"c": run(2 * LEAST, model_size="small")}
    found = Reached.of(alike | other, H100, CONFIG)
    assert found is not None
    assert found.names == ("a", "b")
    found = Reached.of({"a": run(4 * LEAST)} | other, H100, CONFIG)
    assert found is not None
    assert found.names == ("a", "c")


def test_one_run_is_no_range() -> None:
    assert Reached.of({"one": run(4 * LEAST)}, H100, CONFIG) is None


@pytest.mark.parametrize(
    "other",
    [
        run(4 * LEAST, "StandardTrainer"),
        run(4 * LEAST, precision="bf16"),
        run(LEAST / 2),  # faster than the device's memory: a cache, or another device
        result("DPSGDTrainer", step_s=1.0),  # no ledger
        dataclasses.replace(run(4 * LEAST), record=None),
    ],
    ids=["standard", "precision", "too fast", "no ledger", "no record"],
)
def test_other_runs_tell_nothing(other: Result) -> None:
    two = {"one": other, "two": other}
    assert Reached.of(two, H100, CONFIG) is None
