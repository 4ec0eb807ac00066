"""Experiments run in this process: workloads of a user's own, and answers left in the folder."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from example_config import changed, experiment
from example_results import rendered

from dpprof.config.estimating import ESTIMATE
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.measuring import PASS_NAMES
from dpprof.errors import EstimateError
from dpprof.figures.results import read_result
from dpprof.measure.entry import measure
from dpprof.measure.experiment import PASSES as REGISTERED_PASSES
from dpprof.measure.experiment import PassFailed, run_experiment
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Record
from dpprof.vocabulary.out_of_memory import is_oom
from dpprof.vocabulary.phases import PHASES
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

CONFIG = experiment(
    model_size="tiny", hidden_dim=16, vocab_size=64, batch_size=2, seq_len=8, warmup_steps=1, measured_steps=2
).resolve(cuda_available=False)


def folder_for(tmp_path: Path, config: ExperimentConfig) -> RunFolder:
    folder = RunFolder(tmp_path / config.run_name)
    folder.create(config)
    return folder


def test_registry_of_passes_holds_the_configured_names() -> None:
    assert tuple(REGISTERED_PASSES) == (*PASS_NAMES, ESTIMATE)


@pytest.mark.parametrize("workload", ["mlp", "two_tower"])
@pytest.mark.parametrize("trainer", DEFAULT_TRAINERS)
def test_a_workload_of_ones_own(tmp_path: Path, workload: str, trainer: str) -> None:
    config = changed(
        CONFIG, trainer=trainer, workload=f"example_workloads:{workload}", passes="clean,gradient_check"
    )
    record = run_experiment(config, folder_for(tmp_path, config), print)
    assert record.samples_per_step == 2
    assert record.tokens_per_step is None, "no tokens, no figure"
    assert record.gradient_check is not None
    assert record.gradient_check.relative_error_float64 is not None
    assert record.gradient_check.relative_error_float64 < 1e-12
    assert record.nonfinite_losses == 0


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("averaged_loss", "one value per sample, shape (2,); it gave shape ()"),
        ("with_batch_norm", "WorkloadError: 1: nn.BatchNorm1d mixes the samples"),
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


def test_clean_figures_stand_when_a_later_pass_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("example_workloads._models_built", 0)
    config = dataclasses.replace(CONFIG, workload="example_workloads:fails_in_memory_pass")
    folder = folder_for(tmp_path, config)
    assert measure(folder) == 0
    result = read_result(folder)
    assert result.status == "FINISHED"
    assert result.record is not None
    assert len(result.record.step_s) == 2
    assert result.record.failed_passes == {
        "memory": "WorkloadError: workload: example_workloads:fails_in_memory_pass raised RuntimeError: "
        "cannot build it twice"
    }


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
    config = changed(CONFIG, trainer="DPSGDTrainer", accumulation_steps=3, passes="clean")
    record = run_experiment(config, folder_for(tmp_path, config), print)
    assert (record.samples_per_step, record.tokens_per_step) == (6, 48)
    assert len(record.step_s) == len(record.phase_s["forward"]) == 2
    assert record.timed_s is not None
    assert record.timed_s >= sum(record.step_s)
    if sys.platform == "linux":
        assert record.others_processor_s is not None
        assert record.others_processor_s >= 0
    for index, step in enumerate(record.step_s):
        assert sum(seconds[index] for seconds in record.phase_s.values()) <= step


def test_the_same_seed_gives_the_same_record_of_memory(tmp_path: Path) -> None:
    config = changed(CONFIG, trainer="DPGhostClippingTrainer", passes="clean,memory")
    first = run_experiment(config, folder_for(tmp_path, config), print)
    second = run_experiment(config, folder_for(tmp_path, config), print)
    assert first.memory.step_peak == second.memory.step_peak
    assert first.held == second.held


def test_memory_by_arithmetic(tmp_path: Path) -> None:
    """After a step of flat clipping: parameters, gradients, sums and B per-sample gradients; after clean-up
    the parameters alone."""
    config = changed(CONFIG, trainer="DPSGDTrainer", passes="clean,memory")
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


_NCCL = "NCCL error\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError(f"{_NCCL}Cuda failure 2 'out of memory'"), True),
        (RuntimeError(f"{_NCCL}Cuda failure 'out of memory'"), True),
        (RuntimeError(f"{_NCCL}Failed to CUDA calloc 6291456 bytes"), True),
        (RuntimeError(f"{_NCCL}Cuda failure 700 'an illegal memory access was encountered'"), False),
        (RuntimeError("something about memory formats"), False),
        (ValueError("out of range"), False),
    ],
)
def test_is_oom(error: Exception, expected: bool) -> None:
    assert is_oom(error) is expected


def estimate(tmp_path: Path, **settings: Any) -> Record:
    """A tiny estimate, made in this process."""
    given = {"model_size": "tiny", "batch_size": 2, "seq_len": 16, "passes": ESTIMATE, **settings}
    config = experiment(**given).resolve(cuda_available=False)
    folder = RunFolder(tmp_path / str(config.device))
    folder.create(config)
    return run_experiment(config, folder, lambda text: None)


def test_an_estimate_for_a_gpu_takes_the_optimizers_form_there(tmp_path: Path) -> None:
    """AdamW's foreach form, the default on CUDA, holds one more tensor for every parameter at once; the loop
    over parameters, the CPU's default, for one parameter at a time.
    """

    def held(device: str) -> float:
        record = estimate(tmp_path, device=device, optimizer="adamw")
        assert record.ledger is not None
        assert record.num_parameters is not None
        peaks = record.ledger.phase_peak
        more = peaks["optimizer_step"].num_bytes - peaks["zero_grad"].num_bytes
        return more / (4 * record.num_parameters)

    assert held("cuda") == pytest.approx(1, rel=0.01)
    assert held("cpu") < 0.7


def test_an_estimates_peak_is_the_ledgers_and_what_the_allocator_adds(tmp_path: Path) -> None:
    on_cpu, on_cuda = estimate(tmp_path, device="cpu"), estimate(tmp_path, device="cuda")
    assert on_cpu.ledger is not None
    assert on_cuda.ledger is not None
    assert on_cpu.memory.peak_allocated == on_cpu.ledger.peak == on_cuda.ledger.peak
    added = (on_cuda.memory.peak_allocated or 0) - on_cuda.ledger.peak
    assert added == on_cuda.ledger.block_rounding + round(8.125 * 2**20)
    assert on_cuda.step_s == []
    assert on_cuda.headline_finished


def test_a_fault_of_the_model_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PassFailed) as failed:
        estimate(tmp_path, workload="example_workloads:two_batches", device="cpu", accumulation_steps=3)
    assert isinstance(failed.value.__cause__, EstimateError)
    assert "`dpprof profile`" in str(failed.value.__cause__)


def by_phase(ledger: LedgerResult) -> dict[str, tuple[int, int, int]]:
    """Bytes read, bytes written and operations of each phase."""
    return {
        phase: (
            sum(row.read for row in ledger.traffic if row.phase == phase),
            sum(row.written for row in ledger.traffic if row.phase == phase),
            sum(row.flops for row in ledger.traffic if row.phase == phase),
        )
        for phase in PHASES
    }


@pytest.mark.parametrize("trainer", DEFAULT_TRAINERS)
@pytest.mark.parametrize("workload", ["vision", "scaled"])
def test_a_module_under_functorch_is_estimated_as_it_is_measured(
    tmp_path: Path, workload: str, trainer: str
) -> None:
    """Modules with raw parameters: the same peak, traffic and operations with data and without."""
    settings: dict[str, Any] = {"trainer": trainer, "workload": f"example_trapped:{workload}"}
    estimated = estimate(tmp_path, device="cpu", **settings).ledger
    config = changed(CONFIG, seq_len=16, passes="clean,ledger", **settings)
    measured = run_experiment(config, folder_for(tmp_path, config), print).ledger
    assert estimated is not None
    assert measured is not None
    assert estimated.at_peak == measured.at_peak
    if (workload, trainer) != ("scaled", "DPGhostClippingTrainer"):  # its tokens repeat: fewer rows to add up
        assert by_phase(estimated) == by_phase(measured)


def test_a_trap_is_named_in_the_answer_and_the_original_error_is_behind_it(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, trainer="DPSGDTrainer", workload="example_trapped:norm_without_bias")
    folder = folder_for(tmp_path, config)
    assert measure(folder) == 1
    failure = folder.read_error()
    assert failure is not None
    assert failure.message.startswith("WorkloadError: body: Opacus needs the bias of nn.LayerNorm")
    assert "AttributeError: 'NoneType' object has no attribute 'requires_grad'" in (failure.traceback or "")
    assert "compute_layer_norm_grad_sample" in (failure.traceback or "")


def test_running_out_of_memory_in_the_factory_is_no_fault_of_the_workload(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, workload="example_broken:runs_out_of_memory")
    folder = folder_for(tmp_path, config)
    assert measure(folder) == 1
    failure = folder.read_error()
    assert failure is not None
    assert failure.kind == "oom"


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ("speechless", "Speechless: (its message cannot be had: RuntimeError)"),
        ("interrupting", "KeyboardInterrupt: mine"),
        ("tokens_in_words", "tokens_per_batch as a whole number above 0, or None; it gave '128'"),
    ],
)
def test_an_odd_workload_fails_with_its_reason(tmp_path: Path, workload: str, message: str) -> None:
    config = dataclasses.replace(CONFIG, workload=f"example_odd:{workload}")
    folder = folder_for(tmp_path, config)
    assert measure(folder) == 1
    failure = folder.read_error()
    assert failure is not None
    assert failure.kind == "error"
    assert message in failure.message


def test_any_whole_number_counts_tokens(tmp_path: Path) -> None:
    config = changed(CONFIG, workload="example_odd:tokens_of_numpy", passes="clean")
    record = run_experiment(config, folder_for(tmp_path, config), print)
    assert type(record.tokens_per_step) is int
    assert record.tokens_per_step == 128
