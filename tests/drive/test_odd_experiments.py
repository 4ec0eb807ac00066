"""Experiments that do what none should: each has the right reason, and the others are measured."""

import json
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import lay_out_store, run_dpprof, runs_of
from mlflow import MlflowClient

from dpprof.record.figures.results import read_result
from dpprof.record.folder import RunFolder

QUICK = ["--warmup-steps", "2", "--measured-steps", "2", "--passes", "clean,memory"]
EARLY = "the process ended with exit code 0 before it was done"
FIGURES = "latency/step_ms_median"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    """A sweep over what `example_odd.STRIKES` lists."""
    folder = tmp_path_factory.mktemp("odd")
    lay_out_store(folder)
    arguments = ["--workload", "example_odd:odd", "--trainers", "standard", "--seq-lens", "1"]
    arguments += ["--batch-sizes", "2,3,4,5,6,7", "--sweep-name", "odd", *QUICK]
    return folder, run_dpprof(folder, "sweep", *arguments)


def run_folder(folder: Path, batch_size: int) -> RunFolder:
    return RunFolder(folder / "runs" / "odd" / f"StandardTrainer_odd_bs{batch_size}_seq1")


@pytest.mark.parametrize(
    ("batch_size", "kind", "words"),
    [
        (2, "error", EARLY),
        (3, "killed", "ended by signal 40"),
        (4, "error", "its run folder was deleted while it ran"),
        (5, "error", "Expecting property name"),
    ],
)
def test_an_odd_experiment_fails_with_the_right_reason(
    odd: Any, batch_size: int, kind: str, words: str
) -> None:
    folder, ended = odd
    run = runs_of(folder)[run_folder(folder, batch_size).name]
    assert run.info.status == "FAILED", ended.stdout + ended.stderr
    assert run.data.tags["dpprof.failure"] == kind
    failure = read_result(run_folder(folder, batch_size)).failure
    assert failure is not None
    assert words in failure.message
    assert FIGURES not in run.data.metrics


def test_a_damaged_record_is_kept_under_another_name(odd: Any) -> None:
    folder, _ = odd
    assert (run_folder(folder, 5).path / "damaged_record.json").read_text() == "{"


def test_an_early_exit_in_a_later_pass_leaves_the_figures_before_it(odd: Any) -> None:
    folder, ended = odd
    run = runs_of(folder)[run_folder(folder, 6).name]
    assert run.info.status == "FINISHED", ended.stdout + ended.stderr
    assert run.data.metrics[FIGURES] > 0
    record = run_folder(folder, 6).read_record()
    assert record is not None
    assert EARLY in record.failed_passes["memory"]


def test_closed_output_and_another_working_directory_cost_no_figures(odd: Any) -> None:
    folder, ended = odd
    result = read_result(run_folder(folder, 7))
    assert result.failure is None, ended.stdout + ended.stderr
    assert result.record is not None
    assert {name: outcome.status for name, outcome in result.record.passes.items()} == {
        "clean": "finished",
        "memory": "finished",
    }
    log = run_folder(folder, 7).log.read_text()
    assert "memory pass" in log, "what it says goes to the log all the same"
    assert log.count("clean pass") == log.count("finished: ") == 1, "a forked copy goes on"


def test_what_an_experiment_started_in_another_session_ends_with_it(odd: Any) -> None:
    folder, _ = odd
    started = int((run_folder(folder, 7).path / "daemon").read_text())
    assert not psutil.pid_exists(started) or psutil.Process(started).status() == psutil.STATUS_ZOMBIE


def test_links_pipes_and_sockets_are_not_uploaded(odd: Any) -> None:
    folder, ended = odd
    run = runs_of(folder)[run_folder(folder, 7).name]
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    found = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert "own.txt" in found
    assert not found & {"data", "pipe", "socket"}
    traces = {item.path for item in client.list_artifacts(run.info.run_id, "tensorboard")}
    assert "tensorboard/host" not in traces
    left_out = run.data.tags["dpprof.left_out"]
    assert [name.split()[0] for name in left_out.split(", ")] == [
        "data",
        "pipe",
        "socket",
        "tensorboard/host",
    ]
    assert left_out in " ".join(ended.stdout.split())


def test_the_sweep_counts_them(odd: Any) -> None:
    folder, ended = odd
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "4 of 6 experiments failed" in ended.stderr
    assert "Traceback" not in ended.stderr
    summary = json.loads((folder / "runs" / "odd" / "summary.json").read_text())
    assert len(summary["cells"]) == 6
    assert runs_of(folder)["odd"].info.status == "FAILED"
