"""Poisson-sampled batches, empty ones included, through the commands."""

import json
from itertools import islice
from pathlib import Path

import pytest
from conftest import fine, measure_here, runs_of
from example_runs import kept, known

from dpprof.config.experiment import largest_batch
from dpprof.config.flat import from_flat
from dpprof.measure.workloads.sampling import batch_sizes
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

GRID = ["--device", "cpu", "--model-sizes", "tiny", "--seq-lens", "16", "--poisson-sampling", "true"]
GRID += ["--num-layers", "1"]


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep whose timed batches vary, every trainer's alike."""
    folder = tmp_path_factory.mktemp("sampled")
    few = ["--batch-sizes", "2", "--measured-steps", "8", "--sweep-name", "sampled"]
    fine(measure_here(folder, "sweep", *GRID, *few, "--passes", "clean,memory,ledger"))
    return folder


@pytest.mark.parametrize("trainer", DEFAULT_TRAINERS)
def test_timed_batches_vary_and_memory_is_that_of_the_largest(sampled: Path, trainer: str) -> None:
    folder = RunFolder(sampled / "runs" / "sampled" / f"{trainer}_tiny-layers1_bs2_seq16")
    record = known(folder.read_record())
    drawn = batch_sizes(folder.read_config(), is_timed=True)
    assert record.step_samples == list(islice(drawn, 3, 11)), "after three warm-up steps"
    assert 0 in record.step_samples
    ledger = known(record.ledger)
    assert ledger.peak == record.memory.peak_allocated, "both of the largest timed batch"
    assert "other" not in ledger.at_peak, "nothing of the batches that these were cut from"
    inputs = ledger.after_step["inputs"]
    assert inputs == 2 * 8 * 16 * max(record.step_samples), "ids and labels"
    metrics = runs_of(sampled)[folder.name].data.metrics
    assert metrics["step/largest_batch"] == max(record.step_samples)
    assert metrics["throughput/samples_per_s"] == pytest.approx(sum(record.step_samples) / sum(record.step_s))
    assert metrics["throughput/tokens_per_s"] == pytest.approx(16 * metrics["throughput/samples_per_s"])


def test_pages_say_what_the_figures_are_of(sampled: Path) -> None:
    folder = sampled / "runs" / "sampled"
    words = "with Poisson-sampled batches: step times are those of all sizes"
    assert words in (folder / "summary.md").read_text()
    assert words in (folder / "comparison.html").read_text()
    assert words in RunFolder(folder / "DPSGDTrainer_tiny-layers1_bs2_seq16").timeline_page.read_text()


def test_an_estimate_has_the_batch_that_few_steps_exceed(tmp_path: Path) -> None:
    few = ["--batch-sizes", "3", "--poisson-tail", "1e-3", "--trainers", "flat"]
    ended = measure_here(tmp_path, "estimate", "--workers", "1", *GRID, *few, "--sweep-name", "guess")
    folder = tmp_path / "runs" / "guess"
    record = known(RunFolder(folder / "DPSGDTrainer_tiny-layers1_bs3_seq16").read_record())
    assert known(record.ledger).after_step["inputs"] == 2 * 8 * 16 * largest_batch(3, 1e-3)
    told = fine(ended).stdout + (folder / "summary.md").read_text()
    assert "that at most 0.001 of Poisson-sampled ones exceed" in told


def test_a_fit_finds_the_largest_expected_batch(tmp_path: Path) -> None:
    arguments = ["--workload", "example_workloads:mlp", "--trainers", "ghost", "--seq-lens", "1"]
    arguments += ["--device", "cpu", "--poisson-sampling", "true", "--device-memory-gib", "0.001"]
    arguments += ["--workers", "1", "--verify", "true", "--sweep-name", "search"]
    fine(measure_here(tmp_path, "fit", *arguments))
    folder = tmp_path / "runs" / "search"
    (row,) = json.loads((folder / "fit.json").read_text())
    assert (row["confirmed"], row["expected_batch"]) == (True, None)
    assert "The largest expected batch whose training step fits" in (folder / "fit.md").read_text()
    measured = largest_batch(row["largest_batch_size"], 1e-6)
    name = f"DPGhostClippingTrainer_mlp_bs{measured}_seq1_measured"
    assert RunFolder(folder / name).read_record() is not None


@pytest.mark.parametrize("trainer", DEFAULT_TRAINERS)
def test_memory_is_that_of_a_training_with_batches_of_that_size(trainer: str) -> None:
    """An estimate of sampled batches needs what one of fixed batches of the largest size needs."""
    given = {"trainer": trainer, "model_size": "tiny", "num_layers": 1, "seq_len": 16, "device": "cpu"}
    given |= {"passes": "estimate"}
    sampled = from_flat(given | {"batch_size": 3, "poisson_sampling": True})
    fixed = from_flat(given | {"batch_size": sampled.estimated_batch})
    peaks = {kept(c.resolve(cuda_available=False), is_fake=True).account.peak for c in (sampled, fixed)}
    assert len(peaks) == 1
