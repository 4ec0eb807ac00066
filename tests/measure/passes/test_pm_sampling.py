"""The pm_sampling pass: shares of samples by arithmetic, and a step on a stand-in for the GPU's counters."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment
from dpprof.config.measuring import MeasuringConfig
from dpprof.errors import CountersUnavailable
from dpprof.measure.experiment import run_experiment
from dpprof.measure.passes import pm_sampling
from dpprof.measure.passes.pm_sampling import METRICS, Span, counted
from dpprof.record.figures.figures import Figures
from dpprof.record.figures.names import metrics, named
from dpprof.record.folder import RunFolder
from dpprof.record.record import PassStatus, Record

READ, WRITTEN = METRICS


def test_a_sample_in_two_spans_is_divided_by_time() -> None:
    starts = [0, 100_000, 200_000, 300_000]
    frame = {"start_ns": starts, READ: [10.0, 20.0, 40.0, 80.0], WRITTEN: [1.0, 1.0, 1.0, 1.0]}
    spans = [
        Span("forward", 50_000, 150_000),
        Span("backward", 150_000, 300_000),
        Span(None, 50_000, 350_000),
    ]
    found = counted(frame, spans)
    assert [row.phase for row in found.rows] == ["forward", "backward", None]
    assert [row.values[READ] for row in found.rows] == pytest.approx([5 + 10, 10 + 40, 40])
    assert [row.values[WRITTEN] for row in found.rows] == pytest.approx([1, 1.5, 0.5])
    assert [row.seconds for row in found.rows] == pytest.approx([1e-4, 1.5e-4, 5e-5])
    assert found.settings["interval_ms"] == "0.1"


def test_what_lies_outside_of_the_step_does_not_count() -> None:
    frame = {"start_ns": [0, 100_000, 900_000], READ: [7.0, 8.0, 9.0], WRITTEN: [0.0, 0.0, 0.0]}
    (rest,) = counted(frame, [Span(None, 100_000, 900_000)]).rows
    assert rest.values[READ] == 8.0
    assert rest.seconds == pytest.approx(8e-4)


class SteadyTraffic:
    """A device that reads three bytes and writes one in every nanosecond."""

    def __init__(self) -> None:
        self.since = time.monotonic_ns()

    def now(self) -> int:
        return time.monotonic_ns()

    def poll(self) -> dict[str, Any]:
        starts = list(range(self.since, time.monotonic_ns(), 100_000))
        self.since = starts[-1] + 100_000
        return {"start_ns": starts, READ: [3e5] * len(starts), WRITTEN: [1e5] * len(starts)}


def config() -> ExperimentConfig:
    values = {"model_size": "tiny", "batch_size": 2, "seq_len": 16, "trainer": "flat", "device": "cpu"}
    asked = values | {"passes": "clean,ledger,pm_sampling", "measured_steps": 2}
    return parse_experiment(asked, MeasuringConfig).resolve(cuda_available=False)


def measured(folder: Path) -> Record:
    run = RunFolder(folder)
    run.write_config(config())
    return run_experiment(config(), run, lambda line: None)


def test_phases_get_their_share_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def steady(device: str) -> Iterator[SteadyTraffic]:
        yield SteadyTraffic()

    monkeypatch.setattr(pm_sampling, "_torchs_sampler", steady)
    record = measured(tmp_path)
    assert record.counters is not None
    assert {"forward", "backward", "noise", None} <= {row.phase for row in record.counters.rows}
    for row in record.counters.rows:
        assert row.values[READ] == pytest.approx(3e9 * row.seconds, rel=1e-6, abs=1)
        assert row.values[WRITTEN] == pytest.approx(1e9 * row.seconds, rel=1e-6, abs=1)
    figures = metrics(named(record, Figures.of(record)))
    assert figures["counters/dram_read_mib"] == pytest.approx(3 * figures["counters/dram_written_mib"])
    assert figures["counters/dram_read_gib_per_s"] == pytest.approx(3e9 / 2**30)
    assert figures["counters/forward/dram_read_mib"] > 0
    assert "counters/kernel_launches" not in figures


def test_without_a_gpu_the_pass_is_skipped_with_the_reason(tmp_path: Path) -> None:
    record = measured(tmp_path)
    outcome = record.passes["pm_sampling"]
    assert (outcome.status, record.counters) == (PassStatus.SKIPPED, None)
    assert outcome.reason == "PM sampling reads the counters of a GPU, and this runs on the CPU"


def test_a_torch_without_a_sampler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    said = "PM sampling needs torch 2.14 or newer and the package cupti-python"
    with pytest.raises(CountersUnavailable, match=re.escape(said)), pm_sampling._torchs_sampler("cuda"):
        pass
