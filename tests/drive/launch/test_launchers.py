"""What every built-in launcher must do, and a small one of another package, as it was registered."""

import os
from pathlib import Path

import pytest
from conftest import TESTED, fine, lay_out_store, refusal, run_dpprof, runs_of
from example_config import experiment
from example_jobs import ran
from example_launcher_info import TOY
from example_ncu import StandIn
from example_runs import known
from launcher_conformance import LauncherConformance

from dpprof.config.drive import DriveConfig
from dpprof.drive.launch.job import measuring_job
from dpprof.drive.launch.launcher import Launcher, make_launcher
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.launcher_info import LauncherInfo
from dpprof.vocabulary.launchers import BUILT_IN, LAUNCHERS
from dpprof.vocabulary.settings import OptionValue

# Launchers that run jobs elsewhere, as they do so on this machine alone.
OPTIONS: dict[str, dict[str, OptionValue]] = {"slurm": {"slurm_cluster": "local"}}


@pytest.fixture(params=[*(info.name for info in BUILT_IN), TOY.name])
def launcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    monkeypatch.setitem(LAUNCHERS, TOY.name, TOY)
    monkeypatch.setenv("PYTHONPATH", TESTED)
    return make_launcher(DriveConfig(launcher=request.param, options=OPTIONS.get(request.param, {})))


class TestConformance(LauncherConformance):
    pass


@pytest.mark.parametrize("name", ["local", "in_process"])
def test_a_job_that_fails(name: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a run")
    config = experiment(workload="example_workloads:not_a_workload", device="cpu")
    folder.create(config)
    ended, _ = ran(make_launcher(DriveConfig(launcher=name)), measuring_job(config, folder, 120))
    assert (ended.code, ended.timed_out, ended.interrupted) == (1, False, False)
    assert known(folder.read_error()).kind == "error"


def test_a_launcher_that_cannot_be_loaded_is_refused_by_name_and_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = LauncherInfo("lost", "", "example_launcher:NoSuchLauncher")
    far = LauncherInfo("far", "", "no.such:Launcher", package="no_such_package", extra="far")
    needs = "launcher: far needs no_such_package, which is not installed: pip install 'dpprof[far]'"
    for info, said in ((lost, "launcher: lost cannot be used"), (far, needs)):
        monkeypatch.setitem(LAUNCHERS, info.name, info)
        assert said in refusal(make_launcher, DriveConfig(launcher=info.name))


def test_a_launcher_of_another_package_runs_a_sweep_with_counters(tmp_path: Path, stand_in: StandIn) -> None:
    """Registered by its entry point alone."""
    package = tmp_path / "site" / "toy_launcher-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-launcher\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[dpprof.launchers]\ntoy = example_launcher_info:TOY\n")
    path = os.pathsep.join([TESTED, str(package.parent)])
    arguments = ["--model-sizes", "tiny", "--trainers", "standard", "--batch-sizes", "2"]
    arguments += ["--seq-lens", "16", "--device", "cpu", "--passes", "clean", "--measured-steps", "1"]
    arguments += ["--counters", "ncu", "--sweep-name", "s"]
    more = {"PYTHONPATH": path, "PATH": f"{stand_in.place}{os.pathsep}{os.environ['PATH']}"}
    lay_out_store(tmp_path)
    fine(run_dpprof(tmp_path, "sweep", "--launcher", "toy", *arguments, **more))
    runs = runs_of(tmp_path)
    assert runs.pop("s").info.status == "FINISHED"
    ((name, run),) = runs.items()
    assert run.data.metrics["counters/kernel_ms"] > 0
    assert run.data.params["ncu_version"] == "2024.1.1.0"
    assert [Path(call[-1]).name for call in stand_in.calls if "--counted-step" in call] == [name]
    shown = run_dpprof(tmp_path, "sweep", "--help-all", **more).stdout
    assert "toy starts a child process and little more." in " ".join(shown.split())
