"""What a sweep leaves in a real MLflow store; `test_odd_experiments.py` has what goes wrong in one."""

import json
import re
import shutil
import statistics
from pathlib import Path

import pytest
from conftest import artifacts_of, call_dpprof, fine, lay_out_store, measure_here, runs_of
from mlflow import MlflowClient

QUICK = ["--warmup-steps", "2", "--measured-steps", "2", "--passes", "clean,memory"]
DP_TRAINERS = ("DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer")


def test_out_of_memory_alone_is_no_fault(tmp_path: Path) -> None:
    arguments = ["--workload", "example_workloads:unlucky", "--trainers", "standard", "--seq-lens", "1"]
    sweep = ["sweep", *arguments, "--batch-sizes", "5", "--sweep-name", "big"]
    ended = fine(measure_here(tmp_path, *sweep, *QUICK))
    assert runs_of(tmp_path)["big"].info.status == "FINISHED"
    assert re.search(r"^standard +out of memory *$", ended.stdout, flags=re.MULTILINE)


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
    fine(call_dpprof(tmp_path, "log", "runs/grid é"))
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
    median = 1e3 * statistics.median(record["phase_s"]["backward"])
    assert figures["latency/backward_ms"] == pytest.approx(median)
    num_parameters = int(params["num_parameters"])
    assert figures["memory/held_per_sample_gradients_mib"] == pytest.approx(2 * 4 * num_parameters / 2**20)
    assert figures["memory/peak_allocated_mib"] > 4 * 4 * num_parameters / 2**20
    assert figures["profiler/noise/self_time_ms"] > 0
    assert figures["profiler/matrix_product/self_time_ms"] > 0
    assert params["trainer"] == "DPSGDTrainer"
    kept = {"memory_timeline.html", "operators.json", "record.json", "tensorboard"}
    assert kept <= artifacts_of(swept, run)
    traces = artifacts_of(swept, run, "tensorboard")
    assert any(name.endswith(".pt.trace.json.gz") for name in traces)
    assert any("events.out.tfevents" in name for name in traces)
    client = MlflowClient(f"sqlite:///{swept}/mlflow.db")
    query = 'tags.dpprof.trainer = "DPSGDTrainer" and params.seq_len = "16"'
    found = client.search_runs([run.info.experiment_id], query)
    assert [each.info.run_id for each in found] == [run.info.run_id]
    steps = client.get_metric_history(run.info.run_id, "latency/step_ms")
    assert [metric.step for metric in steps] == [0, 1, 2]


def test_summarize_rebuilds_the_summary_from_the_folders(swept: Path) -> None:
    folder = swept / "runs" / "grid é"
    fine(call_dpprof(swept, "summarize", "--runs-dir", "runs", "--output", "results.json"))
    shown = call_dpprof(swept, "summarize", "runs/grid é", "--format", "markdown").stdout
    assert (folder / "summary.md").read_text() in shown
    (rebuilt,) = json.loads((swept / "results.json").read_text())
    assert rebuilt == json.loads((folder / "summary.json").read_text())
