"""What a killed search left is named by the next command, and logged with the right count."""

from pathlib import Path

import pytest
from conftest import call_dpprof, fine, lay_out_store, measure_here, runs_of
from started import started

from dpprof.record.folder import SweepFolder, SweepState

TINY = ["--target", "T4", "--model-size", "tiny", "--seq-len", "8", "--workers", "1"]
SIZES = ["--epochs", "1", "--dataset-size", "20000", "--logical-batches", "64"]
FIT = ["--target", "T4", "--model-sizes", "tiny", "--seq-lens", "8", "--workers", "1", "--trainers", "bk"]
COMMANDS = {
    "fit": FIT,
    "plan": [*TINY, "--trainers", "bk", *SIZES],
    "advise": [*TINY, "--trainer", "flat", "--batch-size", "4"],
}
PROFILE = ["--trainer", "standard", "--model-size", "tiny", "--batch-size", "2", "--seq-len", "8"]
PROFILE += ["--device", "cpu", "--passes", "clean", "--warmup-steps", "1", "--measured-steps", "1"]


@pytest.mark.parametrize(
    "command", ["fit", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("plan", "advise"))]
)
def test_what_a_killed_search_left_is_named_and_logged(tmp_path: Path, command: str) -> None:
    def are_two() -> bool:
        return len(list(tmp_path.glob("runs/*/*/config.json"))) >= 2

    process = started(tmp_path, [command, *COMMANDS[command]], are_two)
    process.kill()
    process.wait()
    (place,) = tmp_path.glob("runs/*")
    name = f"runs/{place.name}"

    said = " ".join(fine(measure_here(tmp_path, "profile", *PROFILE)).stdout.split())
    assert f"{name} was left by process {process.pid} on " in said
    assert f"which was killed: dpprof log {name} logs its 2 runs" in said

    logged = call_dpprof(tmp_path, "log", name)
    assert f"{name}: 2 of 2 runs are in MLflow" in " ".join(logged.stdout.split())
    runs = runs_of(tmp_path)
    parent = runs[place.name].info
    assert parent.status == "KILLED"
    assert [run.data.tags.get("mlflow.parentRunId") for run in runs.values()].count(parent.run_id) == 2
    assert not (place / ".lock").exists(), "nothing is left to name"


@pytest.mark.parametrize("kind", ["sweep", "fit"])
def test_what_was_killed_before_its_first_experiment_ends_too(tmp_path: Path, kind: str) -> None:
    lay_out_store(tmp_path)
    state = SweepState(kind, ["a", "b"] if kind == "sweep" else [])
    SweepFolder(tmp_path / "runs" / "early").write_state(state)
    logged = call_dpprof(tmp_path, "log", "runs/early")
    assert (logged.returncode, logged.stderr) == (0, "")
    assert runs_of(tmp_path)["early"].info.status == "KILLED"
