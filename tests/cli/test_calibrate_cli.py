"""`dpprof calibrate`: what it refuses, what it starts, and what it says of a table that was cut off."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, errors_of, fine, lay_out_store, refusal, runs_of
from example_runs import known
from example_times import GOOD

from dpprof.cli.progress import Progress
from dpprof.config.device_times import TIMES, DeviceTimes
from dpprof.config.drive import DriveConfig
from dpprof.config.entry_points import CalibrateConfig
from dpprof.drive.calibrate import Calibrated, Calibration
from dpprof.drive.jobs import Runner
from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.local import LocalLauncher, LocalMachine
from dpprof.errors import ExperimentsFailed, shown


class Ending(Runner):
    """One whose jobs end at once, after so many `rounds`."""

    def __init__(self, *ends: Any, rounds: int = 2, times: Mapping[str, Any] = GOOD, **how: Any) -> None:
        super().__init__(LocalLauncher(), 1.0, lambda line: None)
        self.end, self.rounds, self.commands = Exit(*ends, **how), rounds, list[list[str]]()
        self.times = {**times, "rounds": rounds}

    def measure(self, job: Job) -> Exit:
        self.commands.append(job.command)
        if self.rounds:
            (job.folder.path / TIMES).write_text(json.dumps(self.times))
        return self.end


def test_precisions_are_those_of_the_device_or_as_asked() -> None:
    assert CalibrateConfig().precisions_on("cuda") == ("fp32", "tf32", "bf16")
    assert CalibrateConfig().precisions_on("cpu") == ("fp32",)
    assert CalibrateConfig(precisions="bf16, fp32,bf16").precisions_on("cpu") == ("bf16", "fp32")
    assert CalibrateConfig(precisions="tf32").precisions_on("cuda") == ("tf32",)
    wanted = "precisions: got 'tf32,bf16', allowed: fp32 and bf16 on the CPU: tf32 needs CUDA"
    assert refusal(CalibrateConfig(precisions="tf32,bf16").precisions_on, "cpu") == wanted
    for text in ("fp8", "fp32,", "FP32", "", "auto,fp32"):
        told = refusal(CalibrateConfig, precisions=text)
        allowed = "allowed: auto, or fp32, tf32, bf16 with commas between"
        assert told == f"precisions: got {shown(text)}, {allowed}"


def test_what_it_cannot_measure_is_refused_before_anything_starts(
    called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalMachine, "cuda_available", lambda self: False)
    for given, allowed in (("fp8", "auto, or fp32, tf32, bf16"), ("fp32,tf32", "fp32 and bf16 on the CPU")):
        said = errors_of(called("calibrate", "--precisions", given))
        assert f"precisions: got '{given}', allowed: {allowed}" in said
    assert not (tmp_path / "runs").exists()


def measured(folder: Path, asked: CalibrateConfig, device: str, ending: Ending) -> Calibration:
    """A calibration in a folder, after its only job."""
    found = Calibration(folder.name, DriveConfig(runs_dir=str(folder.parent)), ending.launcher, asked, device)
    found.watcher = Progress()
    ((task,),) = (stage.tasks for stage in found.stages())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runner, "measure", lambda self, job: ending.measure(job))
        assert task(None) == []  # type: ignore[arg-type]  # it runs no experiment
    return found


def test_the_measuring_process_is_told_the_precisions(tmp_path: Path) -> None:
    for asked, device, expected in (("auto", "cpu", "fp32"), ("bf16,tf32", "cuda", "bf16,tf32")):
        ending = Ending(0)
        found = measured(tmp_path, CalibrateConfig(precisions=asked), device, ending)
        assert (found.cut_off, found.status) == ("", "FINISHED")
        assert ending.commands[-1][-4:] == ["--calibrate", device, expected, str(tmp_path)]


def test_a_calibration_that_is_cut_off_keeps_its_first_round(tmp_path: Path) -> None:
    asked = CalibrateConfig()
    folders = (tmp_path / str(number) for number in range(9))

    def ended(*ends: Any, rounds: int = 1, **how: Any) -> Calibration:
        folder = next(folders)
        folder.mkdir()
        return measured(folder, asked, "cpu", Ending(*ends, rounds=rounds, **how))

    found = ended(-15, timed_out=True)
    assert known(found.times).gpu == "a processor"
    assert (found.cut_off, found.status) == ("timeout_s was over", "KILLED")
    found.raise_if_failed()
    assert "exit code 1" in ended(1).cut_off
    assert "exit code 1" in ended(1, rounds=2).cut_off, "another rank did not come to its end"
    found = ended(-2, interrupted=True)
    assert (found.stopped, found.status) == (f"stopped; {found.file} has the first round alone", "KILLED")
    found = ended(-2, interrupted=True, said="its node was lost", rounds=0)
    assert found.stopped == "its node was lost; no times were measured"
    found = ended(-15, timed_out=True, rounds=0)
    assert found.status == "FAILED"
    with pytest.raises(ExperimentsFailed, match=r"nothing .*: timeout_s was over; see .*run\.log"):
        found.raise_if_failed()


@pytest.mark.parametrize("code", [0, 1])
def test_the_command_names_what_it_measures_and_warns_of_a_rougher_table(
    code: int, called: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lay_out_store(tmp_path)
    busy = GOOD | {"others_pct": 160.0, "processors": 2, "threads": 2}
    ending = Ending(code, rounds=2 - code, times=busy if code else GOOD)
    monkeypatch.setattr(Runner, "measure", lambda self, job: ending.measure(job))
    ended = fine(called("calibrate", "--device", "cpu", "--precisions", "fp32,bf16"))
    said = ended.stdout + ended.stderr
    (place,) = (tmp_path / "runs").iterdir()
    name, run = f"runs/{place.name}", runs_of(tmp_path)[place.name]
    assert f"calibrating cpu in fp32, bf16; everything is kept in {name}" in said
    assert f"kept in {name}/{TIMES}; run {run.info.run_id} in MLflow" in said
    assert f"predict steps on it: dpprof estimate --device cpu --target {name}/{TIMES}" in said
    assert ("cut off after the first round, so that times are rougher: " in said) == bool(code)
    disturbed = "other processes used 1.6 of 2 processors"
    assert (f"{disturbed}: times are too long. Calibrate again" in said) == bool(code)
    assert run.info.status == ("KILLED" if code else "FINISHED")
    assert "overhead/issue_us" not in run.data.metrics, "the table has none"
    description = run.data.tags["mlflow.note.content"]
    more = f"; cut off after the first round; {disturbed}" if code else ""
    assert description == f"Times of 1 operators on a processor{more}"


@pytest.mark.parametrize(
    ("others_pct", "processors", "threads", "told"),
    [
        (160.0, 64, 64, "1.6 of 64"),
        (30.0, 2, 2, "0.3 of 2"),
        (30.0, 64, 64, "0.3 of 64"),
        (20.0, 2, 2, None),
        (20.0, 64, 64, None),
        (160.0, 64, 8, None),  # those that it left free
        (160.0, 0, 0, None),  # a file of earlier versions
        (None, 2, 2, None),
    ],
)
def test_what_others_may_have_of_the_processors_depends_on_those_that_it_leaves_free(
    others_pct: float | None, processors: int, threads: int, told: str | None
) -> None:
    some = GOOD | {"others_pct": others_pct, "processors": processors, "threads": threads}
    found = Calibrated("a", DriveConfig(), LocalLauncher(), times=DeviceTimes(**some))
    assert found.disturbed == (told and f"other processes used {told} processors")
