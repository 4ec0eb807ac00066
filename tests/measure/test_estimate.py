"""Estimates and searches as users run them, held against what was measured."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from conftest import Ended, call_dpprof, fine, measure_here, run_dpprof, runs_of
from example_runs import known, measured
from record_metrics import metrics
from started import started
from torch import nn

from dpprof.drive.sources import read_comparison
from dpprof.findings.comparison.side_tables import pairs
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.record.figures.capacity import needed_bytes
from dpprof.record.folder import RunFolder, SweepFolder

LIMIT_GIB = 0.02
FIT = ["--device", "cpu", "--model-sizes", "tiny", "--seq-lens", "16", "--trainers", "ghost"]
FIT += ["--num-layers", "1"]
ONE = ["--workers", "1"]


@pytest.fixture(scope="module")
def estimated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the estimates of the sweep `grid é`."""
    folder = tmp_path_factory.mktemp("estimated")
    sizes = ["--model-sizes", "tiny", "--batch-sizes", "2", "--seq-lens", "16"]
    ended = fine(measure_here(folder, "estimate", "--device", "cpu", *sizes, "--sweep-name", "guess", *ONE))
    assert "Nothing was run" in ended.stdout
    return folder


def search(folder: Path, workload: str, trainer: str, *arguments: str) -> tuple[Ended, dict[str, Any]]:
    """What a search for a workload's largest batch says, and its row."""
    given = ["--workload", f"example_workloads:{workload}", "--trainers", trainer, "--seq-lens", "1"]
    ended = measure_here(folder, "fit", *given, *arguments, *ONE, "--sweep-name", "search")
    path = folder / "runs" / "search" / "fit.json"
    assert path.exists(), ended.stdout + ended.stderr
    (row,) = json.loads(path.read_text())
    return ended, row


def test_an_estimated_peak_is_the_measured_one(estimated: Path, swept: Path) -> None:
    names = [str(estimated / "runs" / "guess"), str(swept / "runs" / "grid é")]
    comparison, _ = read_comparison(names, estimated, pytest.fail)
    found = pairs(comparison)
    assert len(found) == 4
    for pair in found:
        assert pair.tensors.estimated == pair.tensors.measured, pair.measured.trainer
        assert pair.allocator.off_pct == pytest.approx(0, abs=1)
        assert pair.step.estimated is None, "without a target"
        assert pair.step.measured is not None


def test_the_command_sets_both_side_by_side(estimated: Path, swept: Path) -> None:
    ended = fine(call_dpprof(estimated, "compare", "runs/guess", str(swept / "runs" / "grid é")))
    assert "6 of 10 experiments were not run" in ended.stdout
    assert "Estimate and measurement" in ended.stdout
    page = (estimated / "comparison.html").read_text()
    assert page.count("+0.00</td>") >= 4
    assert "sequence 16, estimated" in page


def test_estimates_have_figures_of_their_own_in_mlflow(estimated: Path) -> None:
    runs = runs_of(estimated)
    child = runs["DPSGDTrainer_tiny_bs2_seq16"]
    assert (child.data.tags["dpprof.kind"], child.data.tags["dpprof.sweep"]) == ("estimate", "guess")
    assert all(name.startswith("estimate/") for name in child.data.metrics)
    assert child.data.metrics["estimate/memory/at_peak/per_sample_gradients_mib"] > 0
    assert child.data.metrics["estimate/io/total_mib"] > 0
    assert child.data.metrics["estimate/vs_standard/memory/peak_allocated_mib_ratio"] > 1
    assert runs["guess"].info.status == "FINISHED"


def test_show_and_the_timeline_say_that_nothing_was_run(estimated: Path) -> None:
    folder = RunFolder(estimated / "runs" / "guess" / "StandardTrainer_tiny_bs2_seq16")
    ended = fine(call_dpprof(estimated, "show", str(folder.path)))
    assert "nothing was run, these are fake tensors: estimated peak" in ended.stdout
    page = folder.timeline_page.read_text()
    assert "Estimated, not measured." in page
    assert "timed steps" not in page


def test_a_batch_that_fits_is_found_and_confirmed(tmp_path: Path) -> None:
    arguments = [*FIT, "--device-memory-gib", str(LIMIT_GIB), "--verify", "true", "--logical-batch", "1000"]
    fine(measure_here(tmp_path, "fit", *arguments, *ONE, "--sweep-name", "search"))
    (row,) = json.loads((tmp_path / "runs" / "search" / "fit.json").read_text())
    size = row["largest_batch_size"]
    folder = SweepFolder(tmp_path / "runs" / "search")
    needed = []
    for batch in (size, size + 1):
        run = folder.run(f"DPGhostClippingTrainer_tiny-layers1_bs{batch}_seq16")
        needed.append(needed_bytes(run.read_config(), known(known(run.read_record()).ledger)))
    usable = 0.95 * LIMIT_GIB * 2**30
    assert needed[0] <= usable < needed[1]
    assert row["without_headroom"] > size
    assert row["evaluations"] <= 5
    assert row["confirmed"] is True
    assert row["tokens_per_s"] > 0
    assert row["physical_steps"] == -(-1000 // size)
    assert 0 < row["expected_batch"] < size
    assert f"{size}" in (tmp_path / "runs" / "search" / "fit.md").read_text()
    runs = runs_of(tmp_path)
    assert runs["search"].data.tags["dpprof.kind"] == "fit"
    assert runs[f"DPGhostClippingTrainer_tiny-layers1_bs{size}_seq16"].data.tags["dpprof.fit"] == "search"


def test_a_search_that_finds_no_end_says_where_it_stopped(tmp_path: Path) -> None:
    ended, row = search(tmp_path, "mlp", "flat", "--target", "H100")
    assert (row["largest_batch_size"], row["is_at_least"]) == (1_048_576, True)
    for text in (fine(ended).stdout, (tmp_path / "runs" / "search" / "fit.md").read_text()):
        assert "1,048,576 or more (not searched further)" in text
        assert "larger ones were not tried" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", *FIT], "device_memory_gib: got '0.0', allowed: a number above 0"),
        (
            ["fit", *FIT, "--device-memory-gib", "1", "--batch-sizes", "4"],
            "batch_sizes: got '4', allowed: auto",
        ),
        (["fit", "--target", "H100", "--verify", "true"], "verify: got 'True', allowed: false"),
        (["fit", *FIT, "--poisson-tail", "1"], "poisson_tail: got '1', allowed: a number above 0"),
        (["estimate", "--target", "H999"], "target: got 'H999', allowed: none, B200"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, arguments: list[str], message: str) -> None:
    ended = call_dpprof(tmp_path, *arguments)
    assert ended.returncode == 2
    assert message in ended.stderr


def test_a_model_that_needs_data_is_refused_with_the_operators_name(tmp_path: Path) -> None:
    arguments = ["--workload", "example_workloads:picks_by_data", "--trainers", "flat", "--seq-lens", "1"]
    ended = run_dpprof(tmp_path, "fit", *arguments, "--target", "T4", "--sweep-name", "search")
    assert ended.returncode == 3
    assert "1 of 1 could not be searched" in ended.stderr
    assert "aten.nonzero.default has a result that depends on data" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr
    runs = runs_of(tmp_path)
    assert runs["search"].info.status == "FAILED"
    assert runs["DPSGDTrainer_picks_by_data_bs13_seq1"].data.tags["dpprof.failure"] == "error"


def test_fit_counts_what_is_in_doubt_as_needed(tmp_path: Path) -> None:
    memory = ["--device-memory-gib", "0.56", "--headroom", "0%"]
    ended, row = search(tmp_path, "two_tower", "standard", *memory)
    fine(ended)
    folder, size = SweepFolder(tmp_path / "runs" / "search"), row["largest_batch_size"]
    found, larger = (
        metrics(known(folder.run(f"StandardTrainer_two_tower_bs{batch}_seq1").read_record()))
        for batch in (size, size + 1)
    )
    assert found["memory/fits"] == 1
    assert "memory/fits" not in larger, "it fits without what is in doubt"
    assert row["doubt_gib"] == pytest.approx(found["memory/doubt_mib"] / 1024)
    assert row["doubt_gib"] > 0
    text = (folder.path / "fit.md").read_text()
    assert "in doubt GiB" in text
    assert "a larger one may fit too" in text


def test_fit_names_no_batch_for_a_model_that_grows(tmp_path: Path) -> None:
    ended, row = search(tmp_path, "hoards", "standard", "--target", "T4")
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "may or may not fit T4 (14.5 GiB), as every step leaves" in ended.stdout
    assert row["largest_batch_size"] is None


def test_ctrl_c_stops_every_estimate_that_runs(tmp_path: Path) -> None:
    arguments = ["--workload", "example_workloads:unlucky", "--trainers", "standard", "--seq-lens", "1"]
    arguments += ["--batch-sizes", "2,7", "--sweep-name", "stopped"]
    folder = SweepFolder(tmp_path / "runs" / "stopped")
    page = folder.run("StandardTrainer_unlucky_bs2_seq1").timeline_page
    record = folder.run("StandardTrainer_unlucky_bs7_seq1").record
    process = started(tmp_path, ["estimate", *arguments], lambda: page.exists() and record.exists())
    time.sleep(1.0)
    (child,) = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, output + errors
    assert "1 of 2 experiments are finished" in errors
    assert "Traceback" not in output + errors
    assert not child.is_running()
    statuses = {name: run.info.status for name, run in runs_of(tmp_path).items()}
    assert statuses["stopped"] == "KILLED"
    assert statuses["StandardTrainer_unlucky_bs2_seq1"] == "FINISHED"


@pytest.mark.parametrize("factory", ["cast_to_bf16", "halved", "channels_last", "adapted_by_peft"])
def test_a_model_that_its_factory_converts_is_estimated_as_measured(tmp_path: Path, factory: str) -> None:
    shared: dict[str, Any] = {"workload": f"example_workloads:{factory}", "trainer": "standard"}
    shared |= {"batch_size": 4, "device": "cpu", "savings": False}
    ledgers = [
        known(measured(tmp_path / passes, passes=passes, **shared).ledger)
        for passes in ("clean,ledger", "estimate")
    ]
    assert ledgers[0].peak == pytest.approx(ledgers[1].peak, abs=64)


def test_a_fake_recurrent_layer_is_converted_with_the_list_of_its_weights() -> None:
    with fake_tensors():
        layer = nn.LSTM(4, 4).to(torch.bfloat16)
        weights = [weight for weight in layer._flat_weights if weight is not None]
        assert [weight.dtype for weight in weights] == [torch.bfloat16] * 4
        assert {id(weight) for weight in weights} == {id(p) for p in layer.parameters()}
