"""The pace of the machine beside the steps, and its ceilings."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from example_config import experiment
from example_results import groups_of
from example_runs import known
from record_metrics import metrics

from dpprof.config.flat import to_flat
from dpprof.measure.passes import machine
from dpprof.measure.passes.subject import Subject
from dpprof.record.folder import RunFolder
from dpprof.record.record import Pace, Record


class Predictor:
    """A clock that work moves on by so many seconds."""

    now = 0.0
    num_works = 0

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.num_works += 1


def test_steps_are_told_in_times_the_fixed_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    config = experiment(device="cpu", warmup_steps=2, measured_steps=5)
    record, clock = Record(to_flat(config), {}), Predictor()
    training: Any = SimpleNamespace(run=lambda num_steps, observer: clock.work(0.02))
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(machine, "fixed_computation", lambda device: lambda: clock.work(0.01))
    monkeypatch.setattr(Subject, "build", lambda self, **_: training)
    machine.run_pace(Subject(config, RunFolder("nowhere"), record))
    assert clock.num_works == 2 * 7, "the fixed computation follows every step"
    assert len(known(record.pace).step_s) == len(known(record.pace).fixed_s) == 5

    figures = metrics(record)
    assert figures["pace/step_ratio"] == pytest.approx(2)
    assert figures["pace/fixed_ms"] == pytest.approx(10)


def test_the_ratio_is_that_of_pairs() -> None:
    """A machine that halves its pace in the middle leaves no trace in it."""
    assert Pace([1.0, 2.0, 4.0, 8.0], [0.5, 1.0, 2.0, 4.0]).ratios == [2, 2, 2, 2]


def test_the_fixed_computation_is_the_same_every_time() -> None:
    compute = machine.fixed_computation("cpu")
    operators = []
    for _ in range(2):
        with torch.profiler.profile() as profiled:
            compute()
        operators.append({event.key: event.count for event in profiled.key_averages()})
    assert operators[0]["aten::addmm"] == operators[1]["aten::addmm"] == 16
    assert operators[0]["aten::mm"] == operators[1]["aten::mm"]


@pytest.mark.parametrize(
    ("tries", "quickest"),
    # The first one warms up; what takes long is tried once.
    [([4.5, *(2.0 + i for i in range(machine._TRIES))], 2.0), ([8.0], 8.0)],
)
def test_bytes_are_divided_by_the_quickest_try(
    tries: list[float], quickest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    lasting(tries, monkeypatch)
    assert machine.copy_bytes_per_s("cpu", 4096) == 2 * 4096 / quickest  # read once and written once


def lasting(seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each try take its seconds by the clock; another try finds no time."""
    clock = iter([time for i, taken in enumerate(seconds) for time in (10.0 * i, 10.0 * i + taken)])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))


def test_a_matrix_product_has_two_flops_for_every_multiplication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_fastest", lambda work, device: (work(), 0.5)[1])
    assert machine.matmul_flop_per_s("cpu", "fp32", 16) == 2 * 16**3 / 0.5
    assert machine.matmul_flop_per_s("cpu", "bf16", 16) == 2 * 16**3 / 0.5


@pytest.mark.parametrize(
    ("precision", "weights", "expected"),
    [
        ("fp32", {}, "fp32"),
        ("fp32", {"bf16": 9, "fp32": 1}, "bf16"),
        ("fp32", {"bf16": 1, "fp32": 9}, "fp32"),
        ("bf16", {"fp32": 9}, "bf16"),
    ],
)
def test_the_product_of_the_ceilings_is_in_the_type_of_the_models(
    precision: str, weights: dict[str, int], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = experiment(device="cpu", precision=precision)
    record, seen = Record(to_flat(config), {}), []
    record.parameters = groups_of(weights)
    monkeypatch.setattr(machine, "MATRIX_ROWS", {"cpu": 8})
    monkeypatch.setattr(machine, "COPY_BYTES", {"cpu": 64})
    monkeypatch.setattr(torch, "mm", lambda left, right, out: seen.append(left.dtype))
    machine.run_ceilings(Subject(config, RunFolder("nowhere"), record))
    assert known(record.ceilings).precision == expected
    assert set(seen) == {torch.bfloat16 if expected == "bf16" else torch.float32}
