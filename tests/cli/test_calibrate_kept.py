"""Calibrations that are stopped, cut off from MLflow, or logged later: real processes, short measurements."""

import json
import shlex
import shutil
import signal
from pathlib import Path
from typing import Any

import example_calibrating
import pytest
import torch
from conftest import Run, artifacts_of, call_dpprof, errors_of, fine, lay_out_store, measure_here, runs_of
from example_times import GOOD
from started import Process, started, store_away

from dpprof.config.device_times import TIMES, DeviceTimes
from dpprof.drive.launch import job
from dpprof.drive.launch.ranks import free_port
from dpprof.record.folder import SweepFolder, SweepState
from dpprof.tracking import store

CALIBRATE = ["calibrate", "--device", "cpu"]
SMALL = ["--model-sizes", "tiny", "--seq-lens", "8", "--batch-sizes", "2", "--trainers", "standard"]


def begun(folder: Path) -> tuple[Process, str]:
    """A calibration that waits with its second round for a file `go`, and its folder."""

    def waits() -> bool:
        return any("round 2" in path.read_text() for path in folder.glob("runs/*/run.log"))

    process = started(folder, CALIBRATE, waits, [example_calibrating.__file__], WAITS="2")
    (place,) = folder.glob("runs/*")
    return process, f"runs/{place.name}"


@pytest.mark.parametrize("uri", ["http://127.0.0.1:{port}", "sqlite:////proc/none/mlflow.db"])
def test_nothing_is_measured_without_mlflow(
    uri: str, called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(job, "MEASURE", example_calibrating.__file__)
    place = uri.format(port=free_port("127.0.0.1"))
    ended = called(*CALIBRATE, MLFLOW_TRACKING_URI=place)
    assert ended.returncode == 5, ended.stdout + ended.stderr
    assert f"dpprof: MLflow at {place} failed: " in ended.stderr
    assert "started" not in ended.stdout
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_times_stay_when_mlflow_goes_away_and_are_logged_later(tmp_path: Path) -> None:
    process, name = begun(tmp_path)
    with store_away(tmp_path):
        (tmp_path / "go").touch()
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 5, output + errors
    assert "warning: MLflow at" in output
    assert f"kept in {name}/{TIMES}\n" in output, "and no run is named"
    missing = f"not everything is in MLflow; when it is back: dpprof log {name}"
    assert errors == f"dpprof: everything is measured, but {missing}\n"

    said = fine(call_dpprof(tmp_path, "log", name)).stdout
    run = runs_of(tmp_path)[name.removeprefix("runs/")]
    assert said == f"{name} is run {run.info.run_id}\n"
    assert run.info.status == "FINISHED"
    assert artifacts_of(tmp_path, run) == {"run.log", TIMES}
    assert fine(call_dpprof(tmp_path, "log", name)).stdout == said, "logged twice"
    assert len(runs_of(tmp_path)) == 1

    (line,) = (line for line in output.splitlines() if line.startswith("predict steps on it: dpprof "))
    command = shlex.split(line.partition(": dpprof ")[2])
    assert "step" in fine(measure_here(tmp_path, *command, *SMALL, "--workers", "1")).stdout


def test_ctrl_c_keeps_the_first_round_and_another_calibration_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, name = begun(tmp_path)
    assert f"{name} is in use by process {process.pid} on " in errors_of(call_dpprof(tmp_path, "log", name))
    monkeypatch.setattr(job, "MEASURE", example_calibrating.__file__)
    said = fine(call_dpprof(tmp_path, *CALIBRATE, "--world-size", "2")).stdout
    (other,) = (path for path in tmp_path.glob(f"runs/*/{TIMES}") if path.parent.name not in name)
    times = DeviceTimes.read(other)
    assert (times.ranks, times.threads, times.rounds) == (2, 2 * torch.get_num_threads(), 2)
    options = f"--device cpu --target {other.relative_to(tmp_path)} --parallel ddp --world-size 2"
    assert f"dpprof estimate {options}" in said

    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors == f"dpprof: stopped; {name}/{TIMES} has the first round alone\n"
    statuses = {f"runs/{name}": run.info.status for name, run in runs_of(tmp_path).items()}
    assert len(statuses) == 2
    assert statuses.pop(name) == "KILLED"
    assert list(statuses.values()) == ["FINISHED"]

    again = fine(call_dpprof(tmp_path, "log", name)).stdout
    assert f"warning: {name} has no complete figures of its operators\n" in again
    run = runs_of(tmp_path)[name.removeprefix("runs/")]
    assert run.info.status == "KILLED"
    assert "; cut off after the first round" in run.data.tags["mlflow.note.content"]


def written(folder: Path, name: str, text: str) -> str:
    place = folder / "runs" / name
    place.mkdir(parents=True)
    (place / TIMES).write_text(text)
    return f"runs/{name}"


def test_what_a_killed_one_left_is_named(tmp_path: Path) -> None:
    lay_out_store(tmp_path)
    left = tmp_path / written(tmp_path, "left", json.dumps(GOOD | {"rounds": 1}))
    SweepFolder(left).write_state(SweepState("calibration"))
    shutil.copytree(left, tmp_path / "runs" / "copied")
    (left / ".lock").write_text("process 1 on this machine")
    said = " ".join(fine(call_dpprof(tmp_path, "log", "runs/copied")).stdout.split())
    assert "runs/left was left by process 1 on this machine, which was killed: dpprof log " in said
    assert "runs/left logs what there is" in said
    fine(call_dpprof(tmp_path, "log", "runs/left"))
    statuses = {name: run.info.status for name, run in runs_of(tmp_path).items()}
    assert statuses == {"copied": "KILLED", "left": "KILLED"}


@pytest.mark.parametrize(
    ("times", "code", "said", "status"),
    [
        (GOOD, 0, "", "FINISHED"),
        (GOOD | {"others_pct": 160.0}, 0, "", "FINISHED"),
        (GOOD | {"rounds": 1}, 0, "NAME has no complete figures of its operators", "KILLED"),
        (GOOD | {"gb_per_s": 0}, 1, "left out NAME/times.json is no table of times: gb_per_s", "KILLED"),
    ],
)
def test_files_that_no_command_wrote_are_logged_too(
    tmp_path: Path, times: dict[str, Any], code: int, said: str, status: str
) -> None:
    """Those of earlier versions, and of the measuring process alone."""
    lay_out_store(tmp_path)
    name = written(tmp_path, "elsewhere", json.dumps(times))
    ended = call_dpprof(tmp_path, "log", name)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert said.replace("NAME", name) in ended.stdout.replace(f"{tmp_path}/", "")
    assert ("not logged, since it cannot be read" in ended.stderr) == bool(code)
    run = runs_of(tmp_path)["elsewhere"]
    assert (run.info.status, run.data.tags["dpprof.kind"]) == (status, "calibration")
    assert ("cannot be read" in run.data.tags["mlflow.note.content"]) == bool(code)
    assert artifacts_of(tmp_path, run) == {TIMES}


def test_a_file_of_times_does_not_make_a_sweep_a_calibration(tmp_path: Path) -> None:
    lay_out_store(tmp_path)
    name = written(tmp_path, "grid", json.dumps(GOOD))
    SweepFolder(tmp_path / name).write_state(SweepState("sweep", ["a"]))
    assert f"{name}: 0 of 0 runs are in MLflow" in fine(call_dpprof(tmp_path, "log", name)).stdout
    assert runs_of(tmp_path)["grid"].data.tags["dpprof.kind"] == "sweep"


def test_what_is_no_folder_of_ours_is_refused(called: Run, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    said = errors_of(called("log", "other"))
    assert "allowed: a run folder, a sweep folder or the folder of a calibration" in said
