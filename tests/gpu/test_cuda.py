"""What only a CUDA device can show: `pytest tests/gpu`."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from example_config import changed
from example_runs import folder_for, known, measured
from example_trainers import gradient_error

from dpprof.config.devices import DEVICES, name_of
from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.entry import measure
from dpprof.measure.experiment import run_experiment
from dpprof.measure.passes.estimate_ledger import CudaLedger
from dpprof.measure.passes.ledger import keep_ledger
from dpprof.measure.trainers.training import Training
from dpprof.record.record import Record
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

pytestmark = [
    pytest.mark.alone,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device on this machine"),
]
# Also runs without a GPU, on a stand-in: `benchmarks/phantom`.
PEAKS = Path(__file__).parents[2] / "benchmarks" / "gpu" / "peaks.py"
CONFIG = ExperimentConfig(device="cuda", model_size="small", batch_size=4, seq_len=256)


@pytest.fixture(scope="module", params=DEFAULT_TRAINERS)
def record(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Record:
    config = dataclasses.replace(CONFIG, trainer=request.param).resolve(cuda_available=True)
    return measured(tmp_path_factory.mktemp("cuda"), config)


def test_phases_make_up_the_step(record: Record) -> None:
    for index, step in enumerate(record.step_s):
        in_phases = sum(seconds[index] for seconds in record.phase_s.values())
        assert 0.9 * step < in_phases <= 1.001 * step


def test_memory_figures_are_in_order(record: Record) -> None:
    memory = record.memory
    figures = (memory.after_cleanup, memory.after_step, memory.peak_allocated, memory.peak_reserved)
    in_order = [4 * known(record.num_parameters), *map(known, figures)]
    assert in_order == sorted(in_order)
    assert len(memory.step_peak) == CONFIG.measuring.measured_steps


def peaks(**settings: Any) -> dict[str, int]:
    """Peaks of steps in a process of their own, which holds nothing of earlier tests."""
    done = subprocess.run(
        [sys.executable, PEAKS], input=json.dumps(settings), capture_output=True, text=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def settings_of(trainer: str, precision: str) -> dict[str, Any]:
    return {
        "trainer": trainer,
        "precision": precision,
        "model_size": "medium",
        "batch_size": 4,
        "seq_len": 256,
    }


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("trainer", DEFAULT_TRAINERS)
def test_the_ledger_sees_the_allocators_peak(trainer: str, precision: str) -> None:
    settings = settings_of(trainer, precision)
    config = ExperimentConfig(device="cuda", **settings).resolve(cuda_available=True)
    device = DEVICES.get(name_of(torch.cuda.get_device_name()))
    if device is None:
        pytest.skip("what this GPU's kernels take beside the tensors is not known")
    found = keep_ledger(lambda: Training(config), CudaLedger("cuda", device), 2).result
    seen = found.peak + sum(found.from_allocator.values())
    assert seen == pytest.approx(peaks(**settings)["allocated"], rel=0.01)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("trainer", DEFAULT_TRAINERS)
@pytest.mark.parametrize("as_without_cuda", [False, True])
def test_an_estimate_gives_the_allocators_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str, precision: str, as_without_cuda: bool
) -> None:
    """Once from fake tensors of the GPU, once from those of the CPU, as on a machine without one."""
    settings = settings_of(trainer, precision)
    unknown = "H100" if torch.cuda.get_device_capability() >= (9, 0) else "none"  # for cuBLAS's workspace
    gpu = torch.cuda.get_device_name()
    target = name_of(gpu) if name_of(gpu) in DEVICES else unknown
    if as_without_cuda:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    base = ExperimentConfig(device="cuda", **settings)
    estimated = changed(base, passes="estimate", target=target, savings=False).resolve(cuda_available=True)
    memory = measured(tmp_path / "estimated", estimated).memory
    truth = peaks(**settings)
    assert memory.peak_allocated == pytest.approx(truth["allocated"], rel=0.01)
    assert memory.peak_reserved == pytest.approx(truth["reserved"], rel=0.02)


def test_the_ledger_knows_modules_in_backward(tmp_path: Path) -> None:
    """Backward runs in a thread of its own there."""
    config = changed(CONFIG, trainer="DPSGDTrainer", passes="clean,ledger").resolve(cuda_available=True)
    folder = folder_for(tmp_path, config)
    run_experiment(config, folder, print)
    per_sample = [t for t in known(folder.read_timeline()).tensors if t.category == "per_sample_gradients"]
    assert "head.weight" in {t.name for t in per_sample}
    assert "head" in {t.module for t in per_sample}


def test_kernels_are_counted_in_forward_and_backward(record: Record) -> None:
    for phase in ("forward", "backward"):
        kernel_s = sum(r.device_self_s or 0.0 for r in record.operators if (r.phase or "").startswith(phase))
        assert kernel_s > 0
    total = sum(row.device_self_s or 0.0 for row in record.operators) / (record.traced_steps or 1)
    assert total < 2 * max(record.step_s), "kernels are counted twice"


@pytest.mark.parametrize("trainer", DEFAULT_TRAINERS)
def test_gradient_equals_the_naive_loop(trainer: str) -> None:
    config = dataclasses.replace(CONFIG, trainer=trainer, seq_len=32).resolve(cuda_available=True)
    assert gradient_error(config, "float64") < 1e-9


def test_out_of_memory_is_told_with_the_last_figures(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, model_size="1b", batch_size=4096, seq_len=4096)
    folder = folder_for(tmp_path, config.resolve(cuda_available=True))
    assert measure(folder) == 1
    failure = known(folder.read_error())
    assert failure.kind == "oom"
    assert known(failure.memory.peak_allocated) > 0
