"""`dpprof calibrate`: what it refuses, what it starts, and what it says of a table that was cut off."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, fine, refusal
from example_times import GOOD

from dpprof.config.device_times import TIMES
from dpprof.config.entry_points import CalibrateConfig
from dpprof.drive import calibrate as driving
from dpprof.drive.jobs import Runner
from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.local import LocalLauncher, LocalMachine
from dpprof.errors import ExperimentsFailed, Interrupted


class Ending(Runner):
    """One whose jobs end at once, after the first round if it `writes`, else before."""

    def __init__(self, *ends: Any, writes: bool = True, **how: Any) -> None:
        super().__init__(LocalLauncher(), 1.0, lambda line: None)
        self.end, self.writes, self.commands = Exit(*ends, **how), writes, list[list[str]]()

    def measure(self, job: Job) -> Exit:
        self.commands.append(job.command)
        if self.writes:
            (job.folder.path / TIMES).write_text(json.dumps(GOOD))
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
        assert told.startswith("precisions: got ")
        assert told.endswith("allowed: auto, or fp32, tf32, bf16 with commas between")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--precisions", "fp8"], "got 'fp8', allowed: auto, or fp32, tf32, bf16"),
        (["--precisions", "tf32", "--device", "cpu"], "got 'tf32', allowed: fp32 and bf16 on the CPU"),
        (["--precisions", "fp32,tf32"], "got 'fp32,tf32', allowed: fp32 and bf16 on the CPU"),
    ],
)
def test_what_it_cannot_measure_is_refused_before_anything_starts(
    options: list[str], why: str, called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalMachine, "cuda_available", lambda self: False)
    ended = called("calibrate", *options)
    assert ended.returncode == 2
    assert f"precisions: {why}" in ended.stderr
    assert not (tmp_path / "runs").exists()


def test_the_measuring_process_is_told_the_precisions(tmp_path: Path) -> None:
    for asked, device, expected in (("auto", "cpu", "fp32"), ("bf16,tf32", "cuda", "bf16,tf32")):
        ending = Ending(0)
        found = driving.calibrate(CalibrateConfig(precisions=asked), device, tmp_path, ending)
        assert found.cut_off == ""
        assert ending.commands[-1][-4:] == ["--calibrate", device, expected, str(tmp_path)]


def test_a_calibration_that_is_cut_off_keeps_its_first_round(tmp_path: Path) -> None:
    asked = CalibrateConfig()
    found = driving.calibrate(asked, "cpu", tmp_path, Ending(-15, timed_out=True))
    assert found.times.gpu == "a processor"
    assert found.cut_off == "timeout_s was over"
    found = driving.calibrate(asked, "cpu", tmp_path, Ending(1))
    assert "exit code 1" in found.cut_off
    with pytest.raises(Interrupted, match=rf"stopped before .*{TIMES} has the first round"):
        driving.calibrate(asked, "cpu", tmp_path, Ending(-2, interrupted=True))
    (tmp_path / TIMES).unlink()
    with pytest.raises(Interrupted, match=r"stopped before everything was measured$"):
        driving.calibrate(asked, "cpu", tmp_path, Ending(-2, writes=False, interrupted=True))
    with pytest.raises(ExperimentsFailed, match="nothing was calibrated: timeout_s was over"):
        driving.calibrate(asked, "cpu", tmp_path, Ending(-15, writes=False, timed_out=True))


@pytest.mark.parametrize("code", [0, 1])
def test_the_command_names_what_it_measures_and_warns_of_a_rougher_table(
    code: int, called: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = Ending(code)
    monkeypatch.setattr(Runner, "measure", lambda self, job: ending.measure(job))
    monkeypatch.setattr(driving, "log", lambda times, folder: "an id")
    ended = fine(called("calibrate", "--device", "cpu", "--precisions", "fp32,bf16"))
    said = ended.stdout + ended.stderr
    assert "calibrating cpu in fp32, bf16; do not use the machine meanwhile" in said
    assert "calibrated a processor" in said
    assert ("cut off after the first round, so that times are rougher: " in said) == bool(code)
