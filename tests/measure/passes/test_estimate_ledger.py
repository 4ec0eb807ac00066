"""The ledger of an estimate: memory that operators take within themselves, tried or assumed."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT
from example_config import experiment
from example_runs import known
from record_metrics import metrics
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from dpprof.config.devices import DEVICES
from dpprof.config.flat import from_flat
from dpprof.measure.experiment import run_experiment
from dpprof.measure.passes import estimate_ledger
from dpprof.measure.passes.estimate_ledger import (
    CpuLedger,
    CudaLedger,
    EstimateLedger,
    Layout,
    OperatorTrial,
    OperatorTrials,
    _RecurrentCalls,
    _transformed_bytes,
)
from dpprof.measure.passes.ledger import keep_ledger
from dpprof.measure.ranks import one_rank_of_many
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.training import Training
from dpprof.record.figures.results import Result, describe
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
    return known(run(folder, model, passes="estimate", **settings).record)


@pytest.mark.parametrize("model", ["lstm", "conv_net", "embedding_bag", "dict_inputs", "gru"])
def test_an_estimate_knows_what_operators_take_within_themselves(tmp_path: Path, model: str) -> None:
    found, measured = estimate(tmp_path, model), known(run(tmp_path, model, **MEASURED).record)
    ledger = known(found.ledger)
    assert found.memory.peak_allocated == measured.memory.peak_allocated
    assert {name: peak.num_bytes for name, peak in ledger.phase_peak.items()} == measured.memory.phase_peak
    assert (ledger.doubts, ledger.growth) == ([], 0)


@pytest.mark.parametrize("trainer", ["StandardTrainer", "DPSGDTrainer", "DPGhostClippingTrainer"])
def test_state_that_grows_leaves_open_whether_it_fits(tmp_path: Path, trainer: str) -> None:
    settings = {"passes": "estimate", "device": "cuda", "device_memory_gib": 40.0, "trainer": trainer}
    held = run(tmp_path, "growing_state", **settings)
    ledger = known(known(held.record).ledger)
    assert ledger.growth == 4 * 3 * 512, "the features of one batch"
    (doubt,) = ledger.doubts
    assert (doubt.name, doubt.num_bytes) == ("growing_state", None)
    figures = metrics(known(held.record))
    assert "memory/fits" not in figures
    assert figures["memory/growth_per_step_mib"] == 4 * 3 * 512 / 2**20
    assert "as every step leaves 6.0 KiB more alive" in describe(held)


def test_a_convolution_on_a_gpu_decides_only_with_room_for_cudnns_workspace(tmp_path: Path) -> None:
    settings = {"device": "cuda", "batch_size": 64}
    figures = metrics(estimate(tmp_path / "first", "conv_net", device_memory_gib=9.0, **settings))
    needed, doubt = figures["memory/needed_mib"], figures["memory/doubt/cudnn_convolution_workspace_mib"]
    assert figures["memory/fits"] == 1
    assert figures["memory/doubt_mib"] == doubt > 1
    between = (needed + doubt / 2) / 1024
    held = run(tmp_path / "second", "conv_net", passes="estimate", device_memory_gib=between, **settings)
    assert "memory/fits" not in metrics(known(held.record))
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


@pytest.mark.parametrize(
    ("size", "assumed"),
    [
        (1, 4 * 4 * (2 * 3 * 64 + 4 * 3 + 2 * 4 * 64)),  # the tensors, four times
        (3, 32 * 17 * 8 * (2 * 3 + 2 * 4 + 4 * 3)),  # a tile for each image, channel and filter
    ],
)
def test_a_workspace_is_assumed_on_top_of_what_is_alive(size: int, assumed: int) -> None:
    def convolve() -> None:
        _other = torch.empty(1_000)
        F.conv2d(torch.empty(2, 3, 8, 8), torch.empty(4, 3, size, size))

    alive = 4 * (1_000 + 2 * 3 * 64 + 4 * 3 * size**2 + 2 * 4 * (9 - size) ** 2)
    (doubt,) = under(CudaLedger("cpu"), convolve).doubts(peak=1_500)
    assert (doubt.name, doubt.num_bytes) == ("cudnn_convolution_workspace", alive + assumed - 1_500)
    (doubt,) = under(CudaLedger("cpu"), convolve).doubts(peak=10**9)
    assert doubt.num_bytes == 0


def test_a_workspace_for_fourier_transforms_is_what_papers_saw() -> None:
    """Non-private ResNet-18 and VGG-11 at batch 256 took 1.9 and 2.0 GB more than their tensors (Bu, Mao and
    Xu 2022, table 4): a transform of 512 to 512 channels of 4 x 4 pixels.
    """
    images = torch.empty(256, 512, 4, 4, device="meta")
    weight = torch.empty(512, 512, 3, 3, device="meta")
    assert _transformed_bytes(images, images, weight) == 2_281_701_376
    wide = torch.empty(1, 1, 2, 61, 31, device="meta")  # 3 x 2 tiles, as filters of 3 leave 30 of 32; depth 2
    assert _transformed_bytes(wide, wide, torch.empty(1, 1, 3, 3, 3, device="meta")) == 4352 * (2 * 12 + 1)
    sequence = torch.empty(2, 5, 40, device="meta")
    assert _transformed_bytes(sequence, sequence, torch.empty(5, 5, 33, device="meta")) == 0, (
        "no tile holds it"
    )


@pytest.mark.parametrize(
    ("call", "name", "is_bounded"),
    [
        (lambda: F.conv2d(torch.empty(2, 3, 8, 8), torch.empty(4, 3, 3, 3)), "untried_convolutions", True),
        (lambda: nn.LSTM(4, 4)(torch.empty(2, 3, 4)), "untried_recurrent_layers", False),
        (lambda: torch.empty(8, 8) @ torch.empty(8, 8), "untried_operators", True),
    ],
)
def test_what_is_too_large_to_be_tried_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[], object], name: str, is_bounded: bool
) -> None:
    assert list(under(CpuLedger(), call).doubts(peak=0)) == []
    monkeypatch.setattr(estimate_ledger, "_LARGEST_BYTES", 10)
    found = {doubt.name: doubt.num_bytes for doubt in under(CpuLedger(), call).doubts(peak=0)}
    assert name in found
    assert (found[name] is not None) is is_bounded


aten = torch.ops.aten


def tried(operator: Any, *args: Any, trials: OperatorTrials | None = None) -> OperatorTrial | None:
    with FakeTensorMode():
        fake = [torch.empty(arg) if isinstance(arg, torch.Size) else arg for arg in args]
        return (trials or OperatorTrials()).of(operator, tuple(fake), {}, operator(*fake), 0)


def test_an_operator_without_working_memory_takes_its_result() -> None:
    found = tried(aten.add.Tensor, torch.Size((5, 7)), torch.Size((5, 7)))
    assert found == OperatorTrial(140, 140, [Layout((5, 7), (7, 1), torch.float32, 35)])


def test_an_operator_that_copies_takes_the_copy_too() -> None:
    """A product reads whole rows: one whose elements lie apart is copied first."""
    with FakeTensorMode():
        apart = torch.empty(6, 8)[:, ::2]
        found = OperatorTrials().of(aten.mm.default, (apart, torch.empty(4, 3)), {}, torch.empty(6, 3), 0)
    assert found is not None
    assert (found.peak, found.left) == (4 * 6 * 3 + 4 * 6 * 4, 4 * 6 * 3)


def test_tensors_that_share_memory_share_it_in_the_trial() -> None:
    with FakeTensorMode():
        layout = Layout.of_argument(torch.empty(4, 1).expand(4, 1_000_000))
    assert layout.num_elements == 4
    assert layout.zeros().untyped_storage().nbytes() == 16


def test_what_cannot_run_on_zeros_is_no_trial() -> None:
    assert tried(aten.multinomial.default, torch.Size((4,)), 2) is None


def test_each_form_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trials, calls = OperatorTrials(), []
    zeros = Layout.zeros

    def counted(layout: Layout) -> Tensor:
        calls.append(layout.shape)
        return zeros(layout)

    monkeypatch.setattr(Layout, "zeros", counted)
    for shape in ((2, 3), (2, 3), (3, 2)):
        tried(aten.neg.default, torch.Size(shape), trials=trials)
    assert calls == [(2, 3), (3, 2)]


def test_how_distributed_tensors_find_shapes_takes_no_memory() -> None:
    """In the first step they run each operator on whole tensors, which are shapes alone: 8 times a shard."""
    settings = {"trainer": "standard", "model_size": "tiny", "batch_size": 2, "seq_len": 32, "device": "cuda"}
    several = {"parallel": "fsdp2", "world_size": 8, "passes": "estimate", "optimizer": "adamw"}
    config = from_flat(settings | several).resolve(cuda_available=False)
    with one_rank_of_many(config, 0), fake_tensors(load_trainer(config.trainer), as_on_cuda=True):
        ledger = CudaLedger("cpu", DEVICES["H100"])
        log = keep_ledger(partial(Training, config, "cpu"), ledger, 1).account.log
    held: dict[int, int] = {}
    levels = []
    for storage, num_bytes in ledger.storages.changes[: log.end_change]:
        held[storage] = num_bytes
        levels.append(sum(held.values()))
    # What is alive at once in the first step is a whole unit, and never the whole model twice.
    assert max(levels[: log.first_change]) <= 1.02 * max(levels[log.first_change :])
