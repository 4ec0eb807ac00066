"""Sweeps as users run them: real child processes, real signals, a real MLflow store."""

import getpass
import json
import re
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, call_dpprof, lay_out_store, measure_here, run_dpprof, runs_of
from mlflow import MlflowClient

from dpprof.vocabulary.trainers import trainer_info

QUICK = ["--warmup-steps", "2", "--measured-steps", "2", "--passes", "clean,memory"]


def artifacts_of(folder: Path, run: Any, path: str | None = None) -> set[str]:
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    return {item.path for item in client.list_artifacts(run.info.run_id, path)}


@pytest.fixture(scope="module")
def unlucky(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    """Batch 2 and 4 go well; 3 is killed, 5 runs out of memory, 6 raises, 7 hangs until the time-out."""
    folder = tmp_path_factory.mktemp("unlucky")
    lay_out_store(folder)
    arguments = ["--workload", "example_workloads:unlucky", "--trainers", "standard", "--timeout-s", "25"]
    arguments += ["--batch-sizes", "2,3,5,6,7,4", "--seq-lens", "1", "--sweep-name", "unlucky", *QUICK]
    return folder, run_dpprof(folder, "sweep", *arguments)


EXPECTED = {2: None, 3: "killed", 5: "oom", 6: "error", 7: "timeout", 4: None}


@pytest.mark.parametrize("batch_size", EXPECTED)
def test_one_bad_experiment_leaves_the_others_alone(unlucky: Any, batch_size: int) -> None:
    folder, ended = unlucky
    run = runs_of(folder)[f"StandardTrainer_unlucky_bs{batch_size}_seq1"]
    failure = EXPECTED[batch_size]
    assert run.info.status == ("FAILED" if failure else "FINISHED"), ended.stdout + ended.stderr
    assert run.data.tags.get("dpprof.failure") == failure
    assert ("latency/step_ms_median" in run.data.metrics) == (failure is None)
    assert run.data.metrics["memory/peak_rss_mib"] > 100
    names = artifacts_of(folder, run)
    assert {"config.json", "run.log"} <= names
    assert ("error.json" in names) == (failure is not None)


def test_a_failed_run_keeps_its_traceback(unlucky: Any) -> None:
    folder, _ = unlucky
    run_folder = folder / "runs" / "unlucky" / "StandardTrainer_unlucky_bs6_seq1"
    error = json.loads((run_folder / "error.json").read_text())
    assert "a fault in the workload" in error["message"]
    assert "unlucky_loss" in error["traceback"]
    assert "unlucky_loss" in (run_folder / "run.log").read_text()


def test_the_sweep_ends_failed_and_says_what_failed(unlucky: Any) -> None:
    folder, ended = unlucky
    assert ended.returncode == 3
    last = ended.stderr.strip().splitlines()[-1]
    assert "3 of 6 experiments failed" in last
    assert "bs5" not in last, "out of memory is a finding, not a fault"
    assert "INFO" not in ended.stdout + ended.stderr, "MLflow says nothing on its own"
    parent = runs_of(folder)["unlucky"]
    assert parent.info.status == "FAILED"
    note = parent.data.tags["mlflow.note.content"]
    assert "2 of 6" in note
    assert "<script>" not in note
    summary = json.loads((folder / "runs" / "unlucky" / "summary.json").read_text())
    ended_as = {cell["settings"]["batch_size"]: cell["runs"][0]["failure"] for cell in summary["cells"]}
    assert ended_as == EXPECTED


def test_children_are_nested_and_carry_shared_params(unlucky: Any) -> None:
    folder, _ = unlucky
    runs = runs_of(folder)
    parent = runs.pop("unlucky")
    assert len(runs) == 6
    for run in runs.values():
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.tags["dpprof.sweep"] == "unlucky"
        assert run.data.tags["dpprof.trainer"] == "StandardTrainer"
        assert run.data.tags["mlflow.runColor"] == trainer_info("StandardTrainer").color
        assert run.data.tags["mlflow.user"] == parent.data.tags["mlflow.user"] == getpass.getuser()
        assert run.data.params["resolved_device"] == "cpu"
    assert "mlflow.runColor" not in parent.data.tags
    assert {run.info.run_name for run in runs.values()} == {f"standard b{size} s1" for size in EXPECTED}


def test_the_sweep_ends_with_the_link_to_its_runs_side_by_side(unlucky: Any) -> None:
    folder, ended = unlucky
    parent = runs_of(folder)["unlucky"]
    link = ended.stdout.split()[-1]
    assert link.startswith("http://127.0.0.1:5000/#/experiments/")
    assert f"({link.partition(':5000/')[2]})" in parent.data.tags["mlflow.note.content"]
    assert "start mlflow ui, then open" in ended.stdout
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    tags = client.get_experiment(parent.info.experiment_id).tags
    view = json.loads(tags[f"mlflow.sharedViewState.{parent.info.run_id}"])
    found = client.search_runs([parent.info.experiment_id], view["searchFilter"])
    assert len(found) == len(EXPECTED)
    assert {chart["type"] for chart in view["compareRunCharts"]} == {"BAR", "SCATTER", "PARALLEL", "IMAGE"}
    assert all(chart["runsCountToCompare"] == len(EXPECTED) for chart in view["compareRunCharts"])


def test_out_of_memory_alone_is_no_fault(tmp_path: Path) -> None:
    arguments = ["--workload", "example_workloads:unlucky", "--trainers", "standard", "--seq-lens", "1"]
    ended = measure_here(tmp_path, "sweep", *arguments, "--batch-sizes", "5", "--sweep-name", "big", *QUICK)
    assert ended.returncode == 0, ended.stderr
    assert runs_of(tmp_path)["big"].info.status == "FINISHED"
    assert re.search(r"^standard +out of memory *$", ended.stdout, flags=re.MULTILINE)


def test_clean_figures_stand_when_a_later_pass_is_killed(dpprof: Run, tmp_path: Path) -> None:
    lay_out_store(tmp_path)
    ended = dpprof("profile", "--workload", "example_workloads:dies_in_trace", "--measured-steps", "2")
    assert ended.returncode == 0, ended.stderr
    (run,) = runs_of(tmp_path).values()
    assert run.info.status == "FINISHED"
    assert run.data.tags["dpprof.failed_pass"].startswith("trace: killed")
    assert "dpprof.failure" not in run.data.tags
    assert run.data.metrics["latency/step_ms_median"] > 0
    assert "pass failed" in ended.stdout


DP_TRAINERS = ("DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer")


@pytest.mark.parametrize("others_processors", [0.0, 1.5])
def test_ratios_to_the_standard_twin(swept: Path, tmp_path: Path, others_processors: float) -> None:
    """Of memory always; of times where nobody else had the processors."""
    lay_out_store(tmp_path)
    shutil.copytree(swept / "runs", tmp_path / "runs", ignore=shutil.ignore_patterns("mlflow.json"))
    for path in (tmp_path / "runs" / "grid é").glob("*/record.json"):
        record = json.loads(path.read_text())
        steps = [0.01] * 6
        record |= {"step_s": steps, "timed_s": sum(steps), "involuntary_switches": 0}
        record["others_processor_s"] = others_processors * sum(steps)
        record["environment"] |= {"cpu_cores": "2", "torch_threads": "2"}
        path.write_text(json.dumps(record))
    ended = call_dpprof(tmp_path, "log", "runs/grid é")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    runs = runs_of(tmp_path)
    standard = runs["StandardTrainer_tiny_bs2_seq16"].data.metrics
    peak, step = "memory/peak_allocated_mib", "latency/step_ms_median"
    for name in DP_TRAINERS:
        figures = runs[f"{name}_tiny_bs2_seq16"].data.metrics
        assert figures[f"vs_standard/{peak}_ratio"] == pytest.approx(figures[peak] / standard[peak])
        assert figures.get(f"vs_standard/{step}_ratio") == (None if others_processors else pytest.approx(1.0))
        assert ("vs_standard/throughput/samples_per_s_ratio" in figures) is not bool(others_processors)


def test_every_run_stands_in_mlflow_with_all_its_parts(swept: Path) -> None:
    run = runs_of(swept)["DPSGDTrainer_tiny_bs2_seq16"]
    figures, params = run.data.metrics, run.data.params
    record = json.loads((swept / "runs" / "grid é" / run.data.tags["dpprof.run"] / "record.json").read_text())
    assert set(record["phase_s"]) == {"zero_grad", "forward", "backward", "clip", "noise", "optimizer_step"}
    rows = zip(record["step_s"], *record["phase_s"].values(), strict=True)
    shares = [sum(phases) / step for step, *phases in rows]
    assert max(shares) <= 1
    assert max(shares) > 0.9, "phases leave a tenth of every step out"
    for phase, seconds in record["phase_s"].items():
        assert figures[f"latency/{phase}_ms"] == pytest.approx(1e3 * statistics.median(seconds))
    assert figures["throughput/samples_per_s"] == pytest.approx(2e3 / figures["latency/step_ms_median"])
    assert figures["throughput/tokens_per_s"] == pytest.approx(16 * figures["throughput/samples_per_s"])
    num_parameters = int(params["num_parameters"])
    assert figures["memory/held_per_sample_gradients_mib"] == pytest.approx(2 * 4 * num_parameters / 2**20)
    assert figures["memory/peak_allocated_mib"] > 4 * 4 * num_parameters / 2**20
    assert figures["profiler/noise/self_time_ms"] > 0
    assert figures["profiler/matrix_product/self_time_ms"] > 0
    assert params["trainer"] == "DPSGDTrainer"
    assert {"memory_timeline.html", "operators.json", "record.json", "tensorboard"} <= artifacts_of(
        swept, run
    )
    traces = artifacts_of(swept, run, "tensorboard")
    assert any(name.endswith(".pt.trace.json.gz") for name in traces)
    assert any("events.out.tfevents" in name for name in traces)
    client = MlflowClient(f"sqlite:///{swept}/mlflow.db")
    found = client.search_runs(
        [run.info.experiment_id], 'tags.dpprof.trainer = "DPSGDTrainer" and params.seq_len = "16"'
    )
    assert [each.info.run_id for each in found] == [run.info.run_id]
    steps = client.get_metric_history(run.info.run_id, "latency/step_ms")
    assert [metric.step for metric in steps] == [0, 1, 2]


def test_summarize_rebuilds_the_summary_from_the_folders(swept: Path) -> None:
    ended = call_dpprof(swept, "summarize", "--runs-dir", "runs", "--output", "results.json")
    assert ended.returncode == 0, ended.stderr
    assert (swept / "runs" / "grid é" / "summary.md").read_text() in call_dpprof(
        swept, "summarize", "runs/grid é", "--format", "markdown"
    ).stdout
    (rebuilt,) = json.loads((swept / "results.json").read_text())
    written = json.loads((swept / "runs" / "grid é" / "summary.json").read_text())
    assert rebuilt == written
