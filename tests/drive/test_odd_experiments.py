"""A real sweep of experiments that do what none should: each has the right reason, and one is measured."""

import getpass
import json
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import artifacts_of, lay_out_store, run_dpprof, runs_of
from example_jobs import is_alive
from example_results import result
from example_runs import known
from mlflow import MlflowClient

from dpprof.drive.endings import write_how_it_ended
from dpprof.drive.launch.job import Exit
from dpprof.record.figures.results import read_result
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.trainers import trainer_info

QUICK = ["--warmup-steps", "2", "--measured-steps", "2", "--passes", "clean,memory"]
EARLY = "the process ended with exit code 0 before it was done"
FIGURES = "latency/step_ms_median"
# By batch size, as in `example_odd.STRIKES`.
REASONS = {
    4: ("error", "its run folder was deleted while it ran"),
    5: ("error", "Expecting property name"),
    8: ("killed", "ended by SIGKILL from outside"),
    9: ("oom", "tried to allocate"),
    10: ("error", "a fault in the workload"),
}
EXPECTED = {size: kind for size, (kind, _) in REASONS.items()} | {6: None, 7: None}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "subprocess.CompletedProcess[str]"]:
    """A sweep over what `example_odd.STRIKES` lists; the last one is measured in spite of all."""
    folder = tmp_path_factory.mktemp("odd")
    lay_out_store(folder)
    arguments = ["--workload", "example_odd:odd", "--trainers", "standard", "--seq-lens", "1"]
    arguments += ["--batch-sizes", "4,5,6,8,9,10,7", "--sweep-name", "odd", *QUICK]
    return folder, run_dpprof(folder, "sweep", *arguments)


def run_folder(folder: Path, batch_size: int) -> RunFolder:
    return RunFolder(folder / "runs" / "odd" / f"StandardTrainer_odd_bs{batch_size}_seq1")


@pytest.mark.parametrize("batch_size", REASONS)
def test_an_odd_experiment_fails_with_the_right_reason(odd: Any, batch_size: int) -> None:
    folder, ended = odd
    run = runs_of(folder)[run_folder(folder, batch_size).name]
    assert run.info.status == "FAILED", ended.stdout + ended.stderr
    kind, words = REASONS[batch_size]
    assert run.data.tags["dpprof.failure"] == kind
    failure = known(read_result(run_folder(folder, batch_size)).failure)
    assert words in failure.message
    assert FIGURES not in run.data.metrics
    assert {"config.json", "error.json"} <= artifacts_of(folder, run)
    if batch_size not in (4, 5):  # of these the record is gone
        assert run.data.metrics["memory/peak_rss_mib"] > 100


def test_a_traceback_and_a_damaged_record_are_kept(odd: Any) -> None:
    failed = run_folder(odd[0], 10)
    assert "odd_loss" in known(known(failed.read_error()).traceback)
    assert "odd_loss" in failed.log.read_text()
    assert (run_folder(odd[0], 5).path / "damaged_record.json").read_text() == "{"


def test_an_early_exit_in_a_later_pass_leaves_the_figures_before_it(odd: Any) -> None:
    folder, ended = odd
    run = runs_of(folder)[run_folder(folder, 6).name]
    assert run.info.status == "FINISHED", ended.stdout + ended.stderr
    assert run.data.metrics[FIGURES] > 0
    assert run.data.tags["dpprof.failed_pass"].startswith(f"memory: error: {EARLY}")
    assert "dpprof.failure" not in run.data.tags


def test_closed_output_and_another_working_directory_cost_no_figures(odd: Any) -> None:
    folder, ended = odd
    read = read_result(run_folder(folder, 7))
    assert read.failure is None, ended.stdout + ended.stderr
    statuses = {name: outcome.status for name, outcome in known(read.record).passes.items()}
    assert statuses == {"clean": "finished", "memory": "finished"}
    log = read.folder.log.read_text()
    assert "memory pass" in log, "what it says goes to the log all the same"
    assert log.count("clean pass") == log.count("finished: ") == 1, "a forked copy goes on"


def test_what_an_experiment_started_in_another_session_ends_with_it(odd: Any) -> None:
    started = int((run_folder(odd[0], 7).path / "daemon").read_text())
    assert not psutil.pid_exists(started) or not is_alive(psutil.Process(started))


def test_links_pipes_and_sockets_are_not_uploaded(odd: Any) -> None:
    folder, ended = odd
    run = runs_of(folder)[run_folder(folder, 7).name]
    found = artifacts_of(folder, run)
    assert {"config.json", "run.log", "own.txt"} <= found
    assert not found & {"data", "pipe", "socket", "error.json"}
    assert "tensorboard/host" not in artifacts_of(folder, run, "tensorboard")
    left_out = run.data.tags["dpprof.left_out"]
    names = [name.split()[0] for name in left_out.split(", ")]
    assert names == ["data", "pipe", "socket", "tensorboard/host"]
    assert left_out in " ".join(ended.stdout.split())


def test_the_sweep_ends_failed_and_says_what_failed(odd: Any) -> None:
    folder, ended = odd
    assert ended.returncode == 3, ended.stdout + ended.stderr
    last = ended.stderr.strip().splitlines()[-1]
    assert "4 of 7 experiments failed" in last
    assert "bs9" not in last, "out of memory is a finding, not a fault"
    assert "INFO" not in ended.stdout + ended.stderr, "MLflow says nothing on its own"
    assert "Traceback" not in ended.stderr
    parent = runs_of(folder)["odd"]
    assert parent.info.status == "FAILED"
    note = parent.data.tags["mlflow.note.content"]
    assert "| StandardTrainer_odd_bs10_seq1 | error" in note
    assert "<script>" not in note
    summary = json.loads((folder / "runs" / "odd" / "summary.json").read_text())
    ended_as = {cell["settings"]["batch_size"]: cell["runs"][0]["failure"] for cell in summary["cells"]}
    assert ended_as == EXPECTED


def test_children_are_nested_and_carry_shared_params(odd: Any) -> None:
    runs = runs_of(odd[0])
    parent = runs.pop("odd")
    assert {run.info.run_name for run in runs.values()} == {f"standard b{size} s1" for size in EXPECTED}
    shared = {
        "mlflow.parentRunId": parent.info.run_id,
        "dpprof.sweep": "odd",
        "dpprof.trainer": "StandardTrainer",
        "mlflow.runColor": trainer_info("StandardTrainer").color,
        "mlflow.user": getpass.getuser(),
    }
    for run in runs.values():
        assert run.data.tags.items() >= shared.items()
        assert run.data.params["resolved_device"] == "cpu"
    assert parent.data.tags["mlflow.user"] == getpass.getuser()
    assert "mlflow.runColor" not in parent.data.tags


def test_the_sweep_ends_with_the_link_to_its_runs_side_by_side(odd: Any) -> None:
    folder, ended = odd
    parent = runs_of(folder)["odd"]
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


@pytest.mark.parametrize(
    ("ended", "kind", "words"),
    [
        (Exit(-15, timed_out=True), "timeout", "stopped after timeout_s=25 seconds"),
        (Exit(-40), "killed", "the process was ended by signal 40; see run.log"),
        (Exit(0), "error", f"{EARLY}, as os._exit(0) does; see run.log"),
    ],
)
def test_an_end_of_the_process_is_told(tmp_path: Path, ended: Exit, kind: str, words: str) -> None:
    """That a time-out ends a job is tested with the launchers."""
    config, folder = result(passes="clean").config, RunFolder(tmp_path / "run")
    folder.create(config)
    write_how_it_ended(config, folder, ended, 25)
    failure = known(folder.read_error())
    assert (failure.kind, failure.message) == (kind, words)
