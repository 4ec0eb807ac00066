"""Experiments run in this process: workloads of a user's own, and answers left in the folder."""

import dataclasses
import json
from pathlib import Path

import pytest

from dpprof.config import ESTIMATE, PASSES, TRAINERS, ExperimentConfig
from dpprof.drive import rendered
from dpprof.experiment import PASSES as REGISTERED_PASSES
from dpprof.experiment import run_experiment
from dpprof.measure import is_oom, measure
from dpprof.paths import RunFolder
from dpprof.results import read_result

CONFIG = ExperimentConfig(
    model_size="tiny", hidden_dim=16, vocab_size=64, batch_size=2, seq_len=8, warmup_steps=1, measured_steps=2
).resolve(cuda_available=False)


def folder_for(tmp_path: Path, config: ExperimentConfig) -> RunFolder:
    folder = RunFolder(tmp_path / config.run_name)
    folder.create(config)
    return folder


def test_registry_of_passes_holds_the_configured_names() -> None:
    assert tuple(REGISTERED_PASSES) == (*PASSES, ESTIMATE)


@pytest.mark.parametrize("workload", ["mlp", "two_tower"])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_workload_of_ones_own(tmp_path: Path, workload: str, trainer: str) -> None:
    config = dataclasses.replace(
        CONFIG, trainer=trainer, workload=f"example_workloads:{workload}", passes="clean,gradient_check"
    )
    record = run_experiment(config, folder_for(tmp_path, config), print)
    assert record.samples_per_step == 2
    assert record.tokens_per_step is None, "no tokens, no figure"
    assert record.gradient_check is not None
    assert record.gradient_check.relative_error_float64 < 1e-12


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("averaged_loss", "one value per sample, shape (2,), it gave shape ()"),
        ("with_batch_norm", "buffers"),
        ("no_such_factory", "no_such_factory"),
        ("not_a_workload", "must return (model, batches, loss)"),
        ("two_batches", "batches ended"),
    ],
)
def test_a_workload_that_breaks_the_contract(tmp_path: Path, workload: str, words: str) -> None:
    config = dataclasses.replace(CONFIG, trainer="DPSGDTrainer", workload=f"example_workloads:{workload}")
    folder = folder_for(tmp_path, config)
    assert measure(folder) == 1
    failure = folder.read_error()
    assert failure is not None
    assert failure.kind == "error"
    assert words in failure.message


def test_clean_figures_stand_when_a_later_pass_fails(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, workload="example_workloads:fails_in_memory_pass")
    folder = folder_for(tmp_path, config)
    assert measure(folder) == 0
    result = read_result(folder)
    assert result.status == "FINISHED"
    assert result.record is not None
    assert len(result.record.step_s) == 2
    assert result.record.failed_passes == {"memory": "RuntimeError: cannot build it twice"}


def test_measuring_by_hand_takes_a_partial_config_and_leaves_no_old_answer(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "by hand")
    folder.path.mkdir()
    settings = {"trainer": "dpsgd_fast", "seq_len": 8, "batch_size": 2, "device": "cpu", "measured_steps": 2}
    folder.config.write_text(json.dumps({**settings, "workload": "example_workloads:averaged_loss"}))
    assert measure(folder) == 1
    assert folder.error.exists()
    folder.config.write_text(json.dumps(settings))
    assert measure(folder) == 0
    result = rendered(folder)
    assert result.status == "FINISHED"
    assert result.config.trainer == "DPFastGradientClippingTrainer"
    assert result.config.vocab_size == 1000, "what was resolved is written back"
    assert len(list(folder.tensorboard.glob("*.pt.trace.json.gz"))) == 1
    assert list(folder.tensorboard.glob("events.out.tfevents*"))
    assert "peak" in folder.timeline_page.read_text()


def test_accumulation_counts_the_logical_step(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, trainer="DPSGDTrainer", accumulation_steps=3, passes="clean")
    record = run_experiment(config, folder_for(tmp_path, config), print)
    assert (record.samples_per_step, record.tokens_per_step) == (6, 48)
    assert len(record.step_s) == len(record.phase_s["forward"]) == 2
    for index, step in enumerate(record.step_s):
        assert sum(seconds[index] for seconds in record.phase_s.values()) <= step


def test_the_same_seed_gives_the_same_record_of_memory(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, trainer="DPGhostClippingTrainer", passes="clean,memory")
    first = run_experiment(config, folder_for(tmp_path, config), print)
    second = run_experiment(config, folder_for(tmp_path, config), print)
    assert first.memory.step_peak == second.memory.step_peak
    assert first.held == second.held


def test_memory_by_arithmetic(tmp_path: Path) -> None:
    """After a step of flat clipping: parameters, gradients, sums and B per-sample gradients; after clean-up
    the parameters alone."""
    config = dataclasses.replace(CONFIG, trainer="DPSGDTrainer", passes="clean,memory")
    record = run_experiment(config, folder_for(tmp_path, config), print)
    assert record.num_parameters is not None
    size = 4 * record.num_parameters
    batch = 2 * 2 * 8 * 8
    memory = record.memory
    assert memory.after_step is not None
    assert memory.after_cleanup is not None
    # The last batch (input ids and labels), the generator's state and scalars are all that comes on top.
    assert 0 <= memory.after_step - (1 + 1 + 1 + 2) * size <= batch + 8192
    assert 0 <= memory.after_cleanup - size <= batch + 8192


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("something about memory formats"), False),
        (ValueError("out of range"), False),
    ],
)
def test_is_oom(error: Exception, expected: bool) -> None:
    assert is_oom(error) is expected
