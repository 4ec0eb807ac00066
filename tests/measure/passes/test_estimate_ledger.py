from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT
from example_config import experiment
from record_metrics import metrics
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from dpprof.figures.results import Result, describe
from dpprof.measure.experiment import run_experiment
from dpprof.measure.passes import trial
from dpprof.measure.passes.estimate_ledger import CpuLedger, CudaLedger, EstimateLedger, _RecurrentCalls
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record

MEASURED = {"passes": "clean,memory", "warmup_steps": 1, "measured_steps": 1}


@pytest.fixture(autouse=True)
def _odd_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def run(folder: Path, model: str, **settings: Any) -> Result:
    """A run of one of the benchmarks' models, in this process."""
    given = {"workload": f"odd_models:{model}", "device": "cpu", "batch_size": 3, "seq_len": 5, **settings}
    config = experiment(**given).resolve(cuda_available=False)
    made = RunFolder(folder / str(given.get("passes", "measured")))
    made.create(config)
    return Result("r", made, config, run_experiment(config, made, lambda text: None), None)


def estimate(folder: Path, model: str, **settings: Any) -> Record:
    record = run(folder, model, passes="estimate", **settings).record
    assert record is not None
    assert record.ledger is not None
    return record


@pytest.mark.parametrize("model", ["lstm", "conv_net", "embedding_bag", "dict_inputs", "gru"])
def test_an_estimate_knows_what_operators_take_within_themselves(tmp_path: Path, model: str) -> None:
    found, measured = estimate(tmp_path, model), run(tmp_path, model, **MEASURED).record
    assert measured is not None
    assert found.ledger is not None
    assert found.memory.peak_allocated == measured.memory.peak_allocated
    peaks = {phase: peak.num_bytes for phase, peak in found.ledger.phase_peak.items()}
    assert peaks == measured.memory.phase_peak
    assert found.ledger.doubts == []
    assert found.ledger.growth == 0


@pytest.mark.parametrize("trainer", ["StandardTrainer", "DPSGDTrainer", "DPGhostClippingTrainer"])
def test_state_that_grows_leaves_open_whether_it_fits(tmp_path: Path, trainer: str) -> None:
    held = run(
        tmp_path, "growing_state", passes="estimate", device="cuda", device_memory_gib=40.0, trainer=trainer
    )
    assert held.record is not None
    assert held.record.ledger is not None
    assert held.record.ledger.growth == 4 * 3 * 512, "the features of one batch"
    (doubt,) = held.record.ledger.doubts
    assert (doubt.name, doubt.num_bytes) == ("growing_state", None)
    figures = metrics(held.record)
    assert "memory/fits" not in figures
    assert figures["memory/growth_per_step_mib"] == 4 * 3 * 512 / 2**20
    assert "may or may not fit 40.0 GiB, as every step leaves 6.0 KiB more alive" in describe(held)


def test_state_that_grows_and_is_too_large_does_not_fit(tmp_path: Path) -> None:
    record = estimate(tmp_path, "growing_state", device="cuda", device_memory_gib=0.5)
    assert metrics(record)["memory/fits"] == 0, "the context alone takes as much"


def test_a_convolution_on_a_gpu_decides_only_with_room_for_cudnns_workspace(tmp_path: Path) -> None:
    settings = {"device": "cuda", "batch_size": 64}
    figures = metrics(estimate(tmp_path / "first", "conv_net", device_memory_gib=9.0, **settings))
    needed, doubt = figures["memory/needed_mib"], figures["memory/doubt/cudnn_convolution_workspace_mib"]
    assert figures["memory/fits"] == 1
    assert figures["memory/doubt_mib"] == doubt > 1
    between = (needed + doubt / 2) / 1024
    held = run(tmp_path / "second", "conv_net", passes="estimate", device_memory_gib=between, **settings)
    assert held.record is not None
    assert "memory/fits" not in metrics(held.record)
    assert f"up to {doubt:,.1f} MiB more are in doubt" in describe(held)


def test_a_recurrent_layer_on_a_gpu_has_cudnns_reserve_in_doubt(tmp_path: Path) -> None:
    figures = metrics(estimate(tmp_path, "lstm", device="cuda"))
    values = 12 * (5 * 3) * 128 * 4  # steps x samples, hidden units, two layers both ways
    assert figures["memory/doubt/cudnn_recurrent_layers_mib"] == 4 * values / 2**20


@pytest.mark.parametrize(
    "layer", [nn.LSTM(4, 6), nn.GRU(4, 6), nn.RNN(4, 6), nn.RNN(4, 6, nonlinearity="relu")]
)
def test_every_recurrent_layer_is_noticed_while_its_functions_are_watched(layer: nn.RNNBase) -> None:
    x = torch.empty(2, 3, 4)
    with _RecurrentCalls() as calls:
        layer(x)
        assert calls.take() == 12 * (2 * 3) * 6 * 4
    layer(x)
    assert calls.take() == 0


def under(ledger: EstimateLedger, call: Callable[[], object]) -> EstimateLedger:
    with FakeTensorMode(), ledger:
        call()
    return ledger


def test_a_workspace_is_assumed_on_top_of_what_is_alive() -> None:
    def convolve() -> None:
        _other = torch.empty(1_000)
        F.conv2d(torch.empty(2, 3, 8, 8), torch.empty(4, 3, 3, 3))

    given, weight, result, other = 2 * 3 * 64, 4 * 27, 2 * 4 * 36, 1_000
    level = 4 * (other + 5 * (given + weight + result))
    (doubt,) = under(CudaLedger("cpu"), convolve).doubts(peak=1_500)
    assert (doubt.name, doubt.num_bytes) == ("cudnn_convolution_workspace", level - 1_500)
    (doubt,) = under(CudaLedger("cpu"), convolve).doubts(peak=10**9)
    assert doubt.num_bytes == 0


@pytest.mark.parametrize(
    ("call", "name", "is_bounded"),
    [
        (
            lambda: F.conv2d(torch.empty(2, 3, 8, 8), torch.empty(4, 3, 3, 3)),
            "untried_convolutions",
            True,
        ),
        (lambda: nn.LSTM(4, 4)(torch.empty(2, 3, 4)), "untried_recurrent_layers", False),
        (lambda: torch.empty(8, 8) @ torch.empty(8, 8), "untried_operators", True),
    ],
)
def test_what_is_too_large_to_be_tried_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[], object], name: str, is_bounded: bool
) -> None:
    assert list(under(CpuLedger(), call).doubts(peak=0)) == []
    monkeypatch.setattr(trial, "_LARGEST_BYTES", 10)
    found = {doubt.name: doubt.num_bytes for doubt in under(CpuLedger(), call).doubts(peak=0)}
    assert name in found
    assert (found[name] is not None) is is_bounded
