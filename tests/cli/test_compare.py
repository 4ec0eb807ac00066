"""`dpprof compare` and `dpprof export`, on the folders and in the MLflow store of a real sweep."""

import csv
import dataclasses
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from conftest import Ended, call_dpprof, errors_of, fine, printed, run_dpprof, runs_of
from example_results import result
from example_runs import known

from dpprof.cli.export import export
from dpprof.record.folder import RunFolder

SWEEP = "runs/grid é"
TRAINERS = ("StandardTrainer", "DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer")


@pytest.fixture(autouse=True)
def inside(swept: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands called in this process work in the sweep's folder, with its store."""
    monkeypatch.chdir(swept)
    mlflow.set_tracking_uri(f"sqlite:///{swept}/mlflow.db")
    yield
    mlflow.set_tracking_uri(None)  # type: ignore[arg-type]


def compared(folder: Path, source: str, baseline: Path | str, *options: str) -> Ended:
    """What comparing with a baseline gives."""
    return call_dpprof(folder, "compare", source, "--baseline", str(baseline), *options)


def exported(*arguments: str) -> Any:
    return json.loads(printed(export, *arguments, "--format", "json"))


def test_a_sweep_is_compared_on_the_terminal_and_as_a_page(swept: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ended = fine(run_dpprof(swept, "compare", SWEEP, "--output", str(page)))
    assert "Memory. Of the DP trainers" in ended.stdout
    assert "What each DP trainer adds to standard" in ended.stdout
    rows = re.findall(r"^(standard|flat|ghost|fast) +[\d.,]+ ± ", ended.stdout, flags=re.MULTILINE)
    assert rows == ["standard", "flat", "ghost", "fast"]
    assert "flat is DPSGDTrainer" in ended.stdout
    assert f"the page with all of it: {page}" in ended.stdout
    assert page.read_text() == (swept / SWEEP / "comparison.html").read_text(), "the sweep's own page"


def test_names_and_ids_in_mlflow_give_the_same_as_folders(swept: Path) -> None:
    """A store must tell what the folders tell, and of each run once, however often it is named."""
    folder = exported(SWEEP)
    assert exported("grid é") == folder
    runs = runs_of(swept)
    assert exported(runs["grid é"].info.run_id) == folder
    one = "DPSGDTrainer_tiny_bs2_seq16"
    assert exported(SWEEP, f"{SWEEP}/{one}", f"{SWEEP}/../{SWEEP[5:]}") == folder
    assert exported("grid é", one, runs["grid é"].info.run_id) == folder
    for name in (one, runs[one].info.run_id, f"{SWEEP}/{one}"):
        (cell,) = exported(name)["cells"]
        assert cell in folder["cells"]


def test_a_single_run_beside_its_sweep_has_its_twin(swept: Path) -> None:
    pair = exported(f"{SWEEP}/DPSGDTrainer_tiny_bs2_seq16", f"{SWEEP}/StandardTrainer_tiny_bs2_seq16")
    assert [cell["source"] for cell in pair["cells"]] == ["grid é", "grid é"]


def test_two_sweeps_of_one_name_are_kept_apart(swept: Path, tmp_path: Path) -> None:
    shutil.copytree(swept / SWEEP, tmp_path / "grid é")
    both = exported(SWEEP, str(tmp_path / "grid é"))
    assert {cell["source"] for cell in both["cells"]} == {"grid é", str(tmp_path / "grid é")}
    assert {len(cell["runs"]) for cell in both["cells"]} == {1}


def test_csv_goes_to_a_file_or_to_the_terminal(swept: Path, tmp_path: Path) -> None:
    text = printed(export, SWEEP)
    assert printed(export, SWEEP, "--output", str(tmp_path / "figures.csv")) == ""
    assert (tmp_path / "figures.csv").read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["trainer"] for row in rows] == list(TRAINERS)
    for row in rows:
        record = json.loads((swept / SWEEP / row["run"] / "record.json").read_text())
        assert float(row["memory/peak_allocated_mib"]) == record["memory"]["peak_allocated"] / 2**20


def made(folder: Path, *, peak_mib: float = 100.0, step_s: float = 0.1, repeats: int = 3) -> str:
    """A sweep of two trainers, measured several times with steady, undisturbed steps."""
    for trainer in TRAINERS[:2]:
        for i in range(repeats):
            steps = [step_s * (1 + 0.001 * (j % 3 + i)) for j in range(30)]
            one = result(trainer, step_s=steps, peak_mib=peak_mib, others_processors=0.0)
            run = RunFolder(folder / (one.name if i == 0 else f"{one.name}_rep{i + 1}"))
            run.create(one.config)
            run.write_record(dataclasses.replace(known(one.record), involuntary_switches=0))
    return str(folder)


@pytest.mark.parametrize(
    ("worse", "what"), [({"peak_mib": 110.0}, "peak memory"), ({"step_s": 0.11}, "step time")]
)
def test_what_got_worse_is_told_and_ends_with_4(tmp_path: Path, worse: dict[str, float], what: str) -> None:
    before, same = made(tmp_path / "before"), made(tmp_path / "same")
    unchanged = compared(tmp_path, same, before)
    assert (unchanged.returncode, unchanged.stderr) == (0, ""), unchanged.stdout
    assert "nothing got worse" in unchanged.stdout
    now = made(tmp_path / "now", **worse)  # type: ignore[arg-type]
    ended = compared(tmp_path, now, before)
    assert ended.returncode == 4
    assert ended.stderr.startswith("dpprof: 2 of 2 cells got worse than before by more than 5 %")
    marked = [line for line in ended.stdout.splitlines() if "WORSE" in line]
    assert len(marked) == 2
    assert all(what in line for line in marked)


def test_the_limit_is_the_users(tmp_path: Path) -> None:
    before, now = (made(tmp_path / str(mib), peak_mib=mib, repeats=1) for mib in (100.0, 110.0))
    ended = fine(compared(tmp_path, now, before, "--fail-above", "11%"))
    assert "nothing got worse; 2 of 4 figures were not judged" in ended.stdout, "times of one run each"
    assert compared(tmp_path, now, before, "--fail-above", "9").returncode == 4


def test_a_sweep_is_its_own_baseline(swept: Path, tmp_path: Path) -> None:
    ended = fine(compared(swept, SWEEP, "grid é", "--output", str(tmp_path / "c.html")))
    assert re.search("not judged: (too few timed steps|the machine was disturbed)", ended.stdout)


@pytest.mark.parametrize("text", ["{}", "\x00"])
def test_a_file_that_is_no_baseline_is_refused(swept: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    said = errors_of(compared(swept, SWEEP, tmp_path / "bad.json", "--output", str(tmp_path / "c")))
    assert "allowed: among files those of `dpprof export --format json`" in said
