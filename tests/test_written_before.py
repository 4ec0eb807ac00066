"""Folders and a store in the format of 0.3.0: every command reads them, and finds the same figures.

dpprof 0.3.0.dev0 (commit eb49c40) made them in a folder `/data`; traces, pages, images and the search's other
experiments are left out:

    S="--model-sizes tiny --num-layers 1 --hidden-dim 16 --vocab-size 64 --device cpu --batch-sizes 2"
    S="$S --seq-lens 16"
    dpprof sweep $S --trainers standard,ghost --measured-steps 4 --sweep-name grid \\
        --passes clean,memory,ledger,trace,gradient_check
    dpprof estimate $S --trainers ghost --sweep-name guess
    dpprof fit --workload example_workloads:mlp --trainers ghost --seq-lens 1 --device cpu \\
        --device-memory-gib 0.001 --sweep-name search
    dpprof export runs/grid --format json --output exported.json

`metrics.json` is what MLflow then had of each run of the sweep.
"""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import mlflow
import pytest
from conftest import call_dpprof, lay_out_store, measure_here, runs_of

from dpprof.record.figures.names import MOVED, PEAK, STEP, ratio_name
from dpprof.record.figures.results import read_result
from dpprof.record.folder import RunFolder

KEPT = Path(__file__).parent / "written_by_0_3"
SMALL = "tiny-vocab64-hidden16-layers1_bs2_seq16"
STANDARD, GHOST = f"StandardTrainer_{SMALL}", f"DPGhostClippingTrainer_{SMALL}"
FITTED = "DPGhostClippingTrainer_mlp_bs1822_seq1"
SWEEP = ["--model-sizes", "tiny", "--num-layers", "1", "--hidden-dim", "16", "--vocab-size", "64"]
SWEEP += ["--device", "cpu", "--batch-sizes", "2", "--seq-lens", "16", "--trainers", "standard,ghost"]
SWEEP += ["--measured-steps", "4", "--passes", "clean,memory,ledger,trace,gradient_check"]
METRICS: dict[str, dict[str, float]] = json.loads((KEPT / "metrics.json").read_text())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the run folders and an empty store."""
    lay_out_store(tmp_path)
    for name in ("grid", "guess", "search"):
        shutil.copytree(KEPT / name, tmp_path / "runs" / name)
    return tmp_path


@pytest.fixture
def old_store(place: Path) -> Path:
    """The same with the old store, whose artifacts lie beside it. An MLflow opens no store of a newer one."""
    if tuple(int(number) for number in mlflow.__version__.split(".")[:2]) < (3, 17):
        pytest.skip("MLflow 3.17 wrote the store, and an older one does not open it")
    (place / "mlflow.db").write_bytes(gzip.decompress((KEPT / "store.db.gz").read_bytes()))
    for run in (place / "runs" / "grid").glob("*/"):
        run_id = json.loads((run / "mlflow.json").read_text())["run_id"]
        shutil.copytree(run, place / "mlruns" / "1" / run_id / "artifacts")
    return place


def printed(folder: Path, *arguments: str, **more: str) -> str:
    """What a command prints."""
    ended = call_dpprof(folder, *arguments, **more)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def in_old_store(folder: Path, *arguments: str) -> str:
    """What a command prints that works with the old store, named as it was when it was written."""
    return printed(folder, *arguments, MLFLOW_TRACKING_URI="sqlite:///mlflow.db")


def figures(comparison: Any) -> dict[str, dict[str, float]]:
    """The figures of every run of an exported comparison or a sweep's summary."""
    return {run["name"]: run["figures"] for cell in comparison["cells"] for run in cell["runs"]}


@pytest.mark.parametrize("run", [f"grid/{STANDARD}", f"grid/{GHOST}", f"guess/{GHOST}", f"search/{FITTED}"])
def test_show(place: Path, run: str) -> None:
    record = json.loads((KEPT / run / "record.json").read_text())
    assert f"{record['ledger']['peak'] / 2**20:.2f}" in printed(place, "show", f"runs/{run}")


def test_export_has_the_figures_of_then(place: Path) -> None:
    now = json.loads(printed(place, "export", "runs/grid", "--format", "json"))
    assert figures(now) == figures(json.loads((KEPT / "exported.json").read_text()))


@pytest.mark.parametrize("sweep", ["grid", "guess"])
def test_summarize_has_the_figures_of_then(place: Path, sweep: str) -> None:
    printed(place, "summarize", "--runs-dir", "runs", "--output", "results.json")
    now = {found["name"]: found for found in json.loads((place / "results.json").read_text())}
    assert figures(now[sweep]) == figures(json.loads((KEPT / sweep / "summary.json").read_text()))


def test_compare_takes_what_is_exported_now_as_its_baseline(place: Path) -> None:
    printed(place, "export", "runs/grid", "--format", "json", "--output", "exported.json")
    text = printed(place, "compare", "runs/grid", "--baseline", "exported.json", "--fail-above", "0")
    assert "nothing got worse" in text
    assert (place / "comparison.html").exists()
    printed(place, "compare", "exported.json", "runs/guess")
    printed(place, "compare", "runs/grid", "--baseline", str(KEPT / "exported.json"), "--fail-above", "0")


@pytest.mark.parametrize(
    ("sweep", "runs"), [("grid", {STANDARD, GHOST}), ("guess", {GHOST}), ("search", {FITTED})]
)
def test_log_into_a_new_store(place: Path, sweep: str, runs: set[str]) -> None:
    printed(place, "log", f"runs/{sweep}")
    found = runs_of(place)
    assert set(found) == runs | {sweep}
    assert all(found[name].data.metrics for name in runs)
    if sweep == "grid":
        for name in runs:
            metrics = found[name].data.metrics
            kept = {key: value for key, value in METRICS[name].items() if key in metrics}
            assert {key: metrics[key] for key in kept} == kept
            assert {PEAK, STEP, MOVED, ratio_name(PEAK), ratio_name(MOVED)} <= kept.keys()


def test_names_are_found_in_the_old_store(old_store: Path) -> None:
    shutil.rmtree(old_store / "runs")
    exported = figures(json.loads((KEPT / "exported.json").read_text()))
    assert figures(json.loads(in_old_store(old_store, "export", "grid", "--format", "json"))) == exported
    one = json.loads(in_old_store(old_store, "export", f"grid/{GHOST}", "--format", "json"))
    assert set(figures(one)) == {GHOST}
    assert "What each DP trainer adds to standard" in in_old_store(old_store, "compare", "grid")


def test_log_into_the_old_store_adds_nothing(old_store: Path) -> None:
    before = run_ids(old_store)
    in_old_store(old_store, "log", "runs/grid")
    assert run_ids(old_store) == before


def run_ids(folder: Path) -> set[str]:
    """The ids of all runs of the folder's store."""
    found = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db").search_runs(["1"])
    return {run.info.run_id for run in found}


def test_resume_keeps_what_is_there_and_measures_what_is_damaged(old_store: Path) -> None:
    grid = old_store / "runs" / "grid"
    kept = (grid / GHOST / "record.json").read_bytes()
    record = json.loads((grid / STANDARD / "record.json").read_text())
    (grid / STANDARD / "record.json").write_text(json.dumps(record | {"step_s": ["0.1"]}))
    (grid / "sweep.json").write_text("{")
    ended = measure_here(old_store, "sweep", *SWEEP, "--sweep-name", "grid", "--resume", "true")
    assert ended.returncode == 0, ended.stderr
    assert (grid / GHOST / "record.json").read_bytes() == kept
    assert read_result(RunFolder(grid / STANDARD)).status == "FINISHED"
    told = "".join(ended.stdout.split())
    assert f"{STANDARD}/record.jsoncannotberead:step_s.0shouldbeavalidnumber" in told
    assert "grid/sweep.jsoncannotberead:itisnovalidJSON" in told
