"""Experiments run in this process: workloads of a user's own, and answers left in the folder."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from covering import product
from example_config import changed, experiment
from example_results import rendered
from example_runs import folder_for, known, measured

from dpprof.config.estimating import ESTIMATE
from dpprof.config.measuring import PASS_NAMES
from dpprof.errors import EstimateError
from dpprof.measure.entry import measure
from dpprof.measure.experiment import PASSES as REGISTERED_PASSES
from dpprof.measure.experiment import PassFailed
from dpprof.record.figures.results import read_result
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.vocabulary.messages import is_oom
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

CONFIG = experiment(
    model_size="tiny", hidden_dim=16, vocab_size=64, batch_size=2, seq_len=8, warmup_steps=1, measured_steps=2
).resolve(cuda_available=False)


def test_registry_of_passes_holds_the_configured_names() -> None:
    assert tuple(REGISTERED_PASSES) == (*PASS_NAMES, ESTIMATE)


@pytest.mark.parametrize(("trainer", "workload"), product(DEFAULT_TRAINERS, ["mlp", "two_tower"]))
def test_a_workload_of_ones_own(tmp_path: Path, workload: str, trainer: str) -> None:
    config = changed(
        CONFIG, trainer=trainer, workload=f"example_workloads:{workload}", passes="clean,gradient_check"
    )
    record = measured(tmp_path, config)
    assert record.samples_per_step == 2
    assert record.tokens_per_step is None, "no tokens, no figure"
    assert known(known(record.gradient_check).relative_error_float64) < 1e-12
    assert record.nonfinite_losses == 0


@pytest.mark.parametrize(
    ("workload", "kind", "words"),
    [
        ("workloads:averaged_loss", "error", "one value per sample, shape (2,); it gave shape ()"),
        ("workloads:with_batch_norm", "error", "WorkloadError: 1: nn.BatchNorm1d mixes the samples"),
        ("workloads:no_such_factory", "error", "no_such_factory"),
        ("workloads:not_a_workload", "error", "must return (model, batches, loss)"),
        ("workloads:two_batches", "error", "batches ended"),
        ("trapped:norm_without_bias", "error", "WorkloadError: body: Opacus needs the bias of nn.LayerNorm"),
        ("broken:runs_out_of_memory", "oom", "MemoryError"),
        ("odd:speechless", "error", "Speechless: (its message cannot be had: RuntimeError)"),
        ("odd:interrupting", "error", "KeyboardInterrupt: mine"),
        ("odd:tokens_in_words", "error", "tokens_per_batch as a whole number above 0"),
    ],
)
def test_a_failure_is_told_with_its_reason(tmp_path: Path, workload: str, kind: str, words: str) -> None:
    config = dataclasses.replace(CONFIG, trainer="DPSGDTrainer", workload=f"example_{workload}")
    folder = folder_for(tmp_path, config)
    assert measure(folder) == 1
    failure = known(folder.read_error())
    assert failure.kind == kind
    assert words in failure.message
    if workload == "trapped:norm_without_bias":
        assert "compute_layer_norm_grad_sample" in (failure.traceback or ""), (
            "the original error is behind it"
        )


def test_clean_figures_stand_when_a_later_pass_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("example_workloads._models_built", 0)
    config = dataclasses.replace(CONFIG, workload="example_workloads:fails_in_memory_pass")
    folder = folder_for(tmp_path, config)
    assert measure(folder) == 0
    result = read_result(folder)
    record = known(result.record)
    assert (result.status, len(record.step_s)) == ("FINISHED", 2)
    assert record.failed_passes["memory"].endswith("raised RuntimeError: cannot build it twice")


def test_measuring_by_hand_takes_a_partial_config_and_leaves_no_old_answer(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "by hand")
    folder.path.mkdir()
    settings = {"trainer": "fast", "seq_len": 8, "batch_size": 2, "device": "cpu", "measured_steps": 2}
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
    record = measured(tmp_path, config)
    of_numpy = measured(tmp_path, changed(CONFIG, workload="example_odd:tokens_of_numpy", passes="clean"))
    assert (type(of_numpy.tokens_per_step), of_numpy.tokens_per_step) == (int, 128), "any whole number counts"
    assert (record.samples_per_step, record.tokens_per_step) == (6, 48)
    assert len(record.step_s) == len(record.phase_s["forward"]) == 2
    assert known(record.timed_s) >= sum(record.step_s)
    if sys.platform == "linux":
        assert known(record.others_processor_s) >= 0
    for index, step in enumerate(record.step_s):
        assert sum(seconds[index] for seconds in record.phase_s.values()) <= step


def test_memory_by_arithmetic(tmp_path: Path) -> None:
    """After a step of flat clipping: parameters, gradients, sums and B per-sample gradients; after clean-up
    the parameters alone."""
    config = changed(CONFIG, trainer="DPSGDTrainer", passes="clean,memory")
    record, again = measured(tmp_path / "1", config), measured(tmp_path / "2", config)
    assert (again.memory.step_peak, again.held) == (record.memory.step_peak, record.held), "by the same seed"
    size = 4 * known(record.num_parameters)
    batch = 2 * 2 * 8 * 8
    after_step, after_cleanup = known(record.memory.after_step), known(record.memory.after_cleanup)
    # The last batch (input ids and labels), the generator's state and scalars are all that comes on top.
    assert 0 <= after_step - (1 + 1 + 1 + 2) * size <= batch + 8192
    assert 0 <= after_cleanup - size <= batch + 8192


_NCCL = "NCCL error\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"


OUT_OF_MEMORY = [
    "[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried",
    "CUDA out of memory. Tried to allocate 2 GiB",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate",
    f"{_NCCL}Cuda failure 2 'out of memory'",
    f"{_NCCL}Cuda failure 'out of memory'",
    f"{_NCCL}Failed to CUDA calloc 6291456 bytes",
]
OTHERS = ["something about memory formats", f"{_NCCL}Cuda failure 700 'an illegal memory access'"]


def test_is_oom() -> None:
    assert is_oom(MemoryError())
    assert not is_oom(ValueError("out of range"))
    assert [text for text in (*OUT_OF_MEMORY, *OTHERS) if is_oom(RuntimeError(text))] == OUT_OF_MEMORY


def estimate(tmp_path: Path, **settings: Any) -> Record:
    """A tiny estimate, made in this process."""
    given = {"model_size": "tiny", "batch_size": 2, "seq_len": 16, "passes": ESTIMATE, **settings}
    return measured(tmp_path / str(given.get("device")), **given)


def test_an_estimate_for_a_gpu_takes_the_optimizers_form_there(tmp_path: Path) -> None:
    """AdamW's foreach form, the default on CUDA, holds one more tensor for every parameter at once; the loop
    over parameters, the CPU's default, for one parameter at a time.
    """

    def held(device: str) -> float:
        record = estimate(tmp_path, device=device, optimizer="adamw")
        peaks = known(record.ledger).phase_peak
        more = peaks["optimizer_step"].num_bytes - peaks["zero_grad"].num_bytes
        return more / (4 * known(record.num_parameters))

    assert held("cuda") == pytest.approx(1, rel=0.01)
    assert held("cpu") < 0.7


def test_an_estimates_peak_is_the_ledgers_and_what_the_allocator_adds(tmp_path: Path) -> None:
    on_cpu, on_cuda = estimate(tmp_path, device="cpu"), estimate(tmp_path, device="cuda")
    ledger = known(on_cuda.ledger)
    assert on_cpu.memory.peak_allocated == known(on_cpu.ledger).peak == ledger.peak
    added = known(on_cuda.memory.peak_allocated) - ledger.peak
    assert added == sum(ledger.from_allocator.values())
    assert ledger.from_allocator["cublas_workspace"] == 2 * 8.125 * 2**20, "forward's and autograd's"
    assert 0 < ledger.from_allocator["block_rounding"] < 2**22
    assert on_cuda.step_s == []
    assert on_cuda.headline_finished


def test_a_fault_of_the_model_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PassFailed) as failed:
        estimate(tmp_path, workload="example_workloads:two_batches", device="cpu", accumulation_steps=3)
    assert isinstance(failed.value.__cause__, EstimateError)
    assert "`dpprof profile`" in str(failed.value.__cause__)


@pytest.mark.parametrize(("trainer", "workload"), product(DEFAULT_TRAINERS, ["vision", "scaled"]))
def test_a_module_under_functorch_is_estimated_as_it_is_measured(
    tmp_path: Path, workload: str, trainer: str
) -> None:
    """Modules with raw parameters: the same peak, traffic and operations with data and without."""
    settings: dict[str, Any] = {"trainer": trainer, "workload": f"example_trapped:{workload}"}
    estimated = known(estimate(tmp_path, device="cpu", **settings).ledger)
    config = changed(CONFIG, seq_len=16, passes="clean,ledger", **settings)
    found = known(measured(tmp_path, config).ledger)
    assert estimated.at_peak == found.at_peak
    if (workload, trainer) != ("scaled", "DPGhostClippingTrainer"):  # its tokens repeat: fewer rows to add up
        assert estimated.moved(by=lambda row: row.phase) == found.moved(by=lambda row: row.phase)
