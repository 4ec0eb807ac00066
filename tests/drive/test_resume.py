"""Resuming what was cut off: by SIGKILL of the driver in a later pass, and by a closed terminal meanwhile."""

import json
import shutil
import signal
import time
from pathlib import Path

import psutil
import pytest
from conftest import call_dpprof, errors_of, fine, measure_here, runs_of
from example_runs import known
from started import with_pipes

GRID = ["--workload", "example_workloads:unlucky", "--trainers", "standard", "--seq-lens", "1"]
QUICK = ["--warmup-steps", "2", "--measured-steps", "2", "--passes", "clean,memory", "--sweep-name", "s"]
RESUME = ["--resume", "true"]
FIRST, SECOND, HANGS = (f"StandardTrainer_unlucky_bs{size}_seq1" for size in (2, 4, 7))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of two cells."""
    folder = tmp_path_factory.mktemp("finished")
    fine(measure_here(folder, "sweep", *GRID, "--batch-sizes", "2,4", *QUICK))
    return folder


@pytest.fixture
def swept(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, store and all."""
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    for path in folder.rglob("mlflow.json"):
        path.write_text(path.read_text().replace(str(finished), str(folder)))
    return folder


def cut_off(run: Path) -> dict[str, object]:
    """Make a record what SIGKILL of the driver leaves during the memory pass."""
    record = json.loads((run / "record.json").read_text())
    record["passes"]["memory"] = {"status": "running", "reason": None, "seconds": None}
    record["memory"] |= {"peak_allocated": None, "phase_peak": {}, "step_peak": []}
    (run / "record.json").write_text(json.dumps(record))
    (run / "mlflow.json").unlink()
    return dict(record)


def test_a_cell_with_a_pass_cut_off_is_done_again(swept: Path) -> None:
    runs = swept / "runs" / "s"
    complete = set(runs_of(swept)[SECOND].data.metrics)
    cut_off(runs / SECOND)
    links = [runs / "mlflow.json", runs / FIRST / "mlflow.json"]
    for link in links:
        link.write_text("{")
    measured_at = (runs / FIRST / "record.json").stat().st_mtime_ns
    ended = fine(measure_here(swept, "sweep", *GRID, "--batch-sizes", "2,4", *QUICK, *RESUME))
    told = "".join(ended.stdout.split())
    assert all(f"{link.relative_to(swept)}cannotberead:" in told for link in links)
    assert (runs / FIRST / "record.json").stat().st_mtime_ns == measured_at
    found = runs_of(swept)
    assert set(found[SECOND].data.metrics) == complete
    assert found["s"].info.status == "FINISHED"


def test_a_sweep_with_missing_cells_is_logged_as_stopped(swept: Path) -> None:
    runs = swept / "runs" / "s"
    shutil.rmtree(runs / SECOND)
    (swept / "mlflow.db").unlink()
    ended = fine(call_dpprof(swept, "log", "runs/s"))
    assert f"has no complete figures of {SECOND}" in ended.stdout
    found = runs_of(swept)
    assert {name: run.info.status for name, run in found.items()} == {"s": "KILLED", FIRST: "FINISHED"}
    assert found["s"].data.params["num_experiments"] == "2"
    fine(call_dpprof(swept, "compare", "s"))
    cut_off(runs / FIRST)
    call_dpprof(swept, "log", "runs/s")
    assert json.loads((runs / "sweep.json").read_text())["experiments"] == [FIRST, SECOND]
    fine(measure_here(swept, "sweep", *GRID, "--batch-sizes", "2,4", *QUICK, *RESUME))
    assert runs_of(swept)["s"].info.status == "FINISHED"


def test_a_terminal_that_closes_while_resuming_keeps_the_earlier_figures_and_nobody_else_gets_in(
    swept: Path,
) -> None:
    """Nobody reads any more, and the signals of a terminal's end come in a row."""
    runs = swept / "runs" / "s"
    shutil.copytree(runs / SECOND, runs / HANGS)
    config = json.loads((runs / HANGS / "config.json").read_text())
    (runs / HANGS / "config.json").write_text(json.dumps(config | {"batch_size": 7}))
    record = cut_off(runs / HANGS)
    resume = [*GRID, "--batch-sizes", "2,7", *QUICK, *RESUME]
    driver = with_pipes(swept, ["sweep", *resume], (runs / f".{HANGS}.again" / "record.json").exists)
    for other in (["sweep", *resume], ["sweep", *resume[:-2]], ["log", "runs/s"], ["log", f"runs/s/{FIRST}"]):
        assert f"in use by process {driver.pid} on " in errors_of(call_dpprof(swept, *other))
    time.sleep(1.0)
    (child,) = psutil.Process(driver.pid).children()
    for output in (driver.stdout, driver.stderr):
        known(output).close()
    driver.send_signal(signal.SIGHUP)
    driver.send_signal(signal.SIGQUIT)
    assert driver.wait(timeout=60) == 130
    assert psutil.wait_procs([child], timeout=60)[1] == []
    assert json.loads((runs / HANGS / "record.json").read_text()) == record
    assert [path.name for path in runs.iterdir() if path.name.startswith(".")] == []
    statuses = {name: run.info.status for name, run in runs_of(swept).items()}
    assert statuses == {"s": "KILLED", FIRST: "FINISHED", SECOND: "FINISHED", HANGS: "KILLED"}
