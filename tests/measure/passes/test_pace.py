import time

import pytest
import torch
from example_config import experiment
from record_metrics import metrics

from dpprof.config.flat import to_flat
from dpprof.measure.observe import Subject
from dpprof.measure.passes import pace
from dpprof.record.folder import RunFolder
from dpprof.record.record import Pace, Record


class Training:
    """Steps that only take their time: `slowness` seconds each."""

    def __init__(self, slowness: float) -> None:
        self.slowness = slowness
        self.steps = 0

    def run(self, num_steps: int, observer: object) -> None:
        for _ in range(num_steps):
            self.steps += 1
            until = time.perf_counter() + self.slowness
            while time.perf_counter() < until:
                pass


def paced(training: Training, monkeypatch: pytest.MonkeyPatch, fixed_s: float) -> Record:
    config = experiment(device="cpu", warmup_steps=2, measured_steps=5)
    record = Record(to_flat(config), {})
    fixed = Training(fixed_s)
    monkeypatch.setattr(pace, "fixed_computation", lambda device: lambda: fixed.run(1, None))
    pace.run(Subject(config, RunFolder("nowhere"), record, lambda **_: training))  # type: ignore[arg-type]
    assert fixed.steps == training.steps == 7, "the fixed computation follows every step"
    return record


@pytest.mark.alone
def test_steps_are_told_in_times_the_fixed_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    record = paced(Training(0.02), monkeypatch, 0.01)
    assert record.pace is not None
    assert len(record.pace.step_s) == len(record.pace.fixed_s) == 5
    figures = metrics(record)
    assert figures["pace/step_ratio"] == pytest.approx(2, rel=0.1)
    assert figures["pace/fixed_ms"] == pytest.approx(10, rel=0.1)


def test_the_ratio_is_that_of_pairs() -> None:
    """A machine that halves its pace in the middle leaves no trace in it."""
    assert Pace([1.0, 2.0, 4.0, 8.0], [0.5, 1.0, 2.0, 4.0]).ratios == [2, 2, 2, 2]


def test_the_fixed_computation_is_the_same_every_time() -> None:
    compute = pace.fixed_computation("cpu")
    operators = []
    for _ in range(2):
        with torch.profiler.profile() as profiled:
            compute()
        operators.append({event.key: event.count for event in profiled.key_averages()})
    assert operators[0]["aten::addmm"] == 16
    assert operators[0]["aten::addmm"] == operators[1]["aten::addmm"]
    assert operators[0]["aten::mm"] == operators[1]["aten::mm"]
