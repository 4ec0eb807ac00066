"""`dpprof compare` and `dpprof export`, on the folders and in the MLflow store of a real sweep."""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from click.testing import CliRunner
from conftest import call_dpprof, run_dpprof, runs_of

from dpprof.cli.export import export
from dpprof.errors import ConfigError

SWEEP = "runs/grid é"
TRAINERS = ("StandardTrainer", "DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer")


@pytest.fixture(autouse=True)
def inside(swept: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands called in this process work in the sweep's folder, with its store."""
    monkeypatch.chdir(swept)
    mlflow.set_tracking_uri(f"sqlite:///{swept}/mlflow.db")
    yield
    mlflow.set_tracking_uri(None)  # type: ignore[arg-type]


def printed(*arguments: str) -> str:
    """What `dpprof export` prints."""
    ended = CliRunner().invoke(export, arguments, catch_exceptions=False)
    assert ended.exit_code == 0
    return ended.stdout


def exported(*arguments: str) -> Any:
    return json.loads(printed(*arguments, "--format", "json"))


def test_a_sweep_is_compared_on_the_terminal_and_as_a_page(swept: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ended = run_dpprof(swept, "compare", SWEEP, "--output", str(page))
    assert ended.returncode == 0, ended.stderr
    assert "Memory. Of the DP trainers" in ended.stdout
    assert "  - Traffic: " in ended.stdout
    rows = re.findall(r"^  (standard|flat|ghost|fast) +[\d.,]+ ± ", ended.stdout, flags=re.MULTILINE)
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


def test_a_damaged_run_is_left_out_with_a_warning(swept: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(swept / SWEEP, copy)
    (copy / "DPSGDTrainer_tiny_bs2_seq16" / "record.json").write_text("{")
    ended = CliRunner().invoke(export, [str(copy)], catch_exceptions=False)
    damaged = copy / "DPSGDTrainer_tiny_bs2_seq16" / "record.json"
    assert (
        f"warning: left out {damaged.parent.name}: {damaged} cannot be read: it is no valid JSON"
        in ended.stderr
    )
    assert len(list(csv.reader(io.StringIO(ended.stdout)))) == 1 + 3


def test_csv_goes_to_a_file_or_to_the_terminal(swept: Path, tmp_path: Path) -> None:
    text = printed(SWEEP)
    assert printed(SWEEP, "--output", str(tmp_path / "figures.csv")) == ""
    assert (tmp_path / "figures.csv").read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["trainer"] for row in rows] == list(TRAINERS)
    for row in rows:
        record = json.loads((swept / SWEEP / row["run"] / "record.json").read_text())
        assert float(row["memory/peak_allocated_mib"]) == record["memory"]["peak_allocated"] / 2**20


def test_a_file_that_cannot_be_written_is_named(swept: Path) -> None:
    with pytest.raises(ConfigError, match="output: got 'no/such/place', allowed: a file that can be written"):
        printed(SWEEP, "--output", "no/such/place")
    ended = call_dpprof(swept, "compare", SWEEP, "--output", "no/such/place")
    assert ended.returncode == 2
    assert "output: got 'no/such/place', allowed: a file that can be written" in ended.stderr


def steady(step_s: list[float], repeat: int) -> list[float]:
    """Many steps with hardly any spread, a little slower in every repeat."""
    median = sorted(step_s)[1]
    return [median * (1 + 0.001 * (i % 3 + repeat)) for i in range(30)]


def baseline(swept: Path, path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The sweep as exported, each cell run three times with steady, undisturbed steps, every run changed."""
    data = exported(SWEEP)
    for cell in data["cells"]:
        (run,) = cell["runs"]
        undisturbed = dict.fromkeys(
            [
                "overhead/others_processor_pct",
                "overhead/involuntary_switches_per_step",
                "latency/step_ms_iqr",
            ],
            0.0,
        )
        cell["runs"] = [
            run | {"step_s": steady(run["step_s"], i), "figures": {**run["figures"], **undisturbed}}
            for i in range(3)
        ]
        for run in cell["runs"]:
            change(run)
    path.write_text(json.dumps(data))
    return path


def repeated(swept: Path, folder: Path) -> Path:
    """The sweep's folder, each cell run three times with steady, undisturbed steps."""
    for run in (swept / SWEEP).glob("*/"):
        for i in range(3):
            copy = folder / (run.name if i == 0 else f"{run.name}_rep{i + 1}")
            shutil.copytree(run, copy)
            data = json.loads((copy / "record.json").read_text())
            data["step_s"] = steady(data["step_s"], i)
            data |= {"others_processor_s": 0.0, "involuntary_switches": 0}
            (copy / "record.json").write_text(json.dumps(data))
    return folder


def scale(metric: str, factor: float) -> Callable[[dict[str, Any]], None]:
    def change(run: dict[str, Any]) -> None:
        run["figures"][metric] *= factor
        if metric == "latency/step_ms_median":
            run["step_s"] = [s * factor for s in run["step_s"]]

    return change


@pytest.mark.parametrize(
    ("metric", "what"),
    [("memory/peak_allocated_mib", "peak memory"), ("latency/step_ms_median", "step time")],
)
def test_what_got_worse_is_told_and_ends_with_4(swept: Path, tmp_path: Path, metric: str, what: str) -> None:
    same = baseline(swept, tmp_path / "same.json", lambda run: None)
    better = baseline(swept, tmp_path / "better.json", scale(metric, 1 / 1.1))
    now = repeated(swept, tmp_path / "now")

    def compare(to: Path) -> Any:
        return call_dpprof(
            swept,
            "compare",
            str(now),
            "--baseline",
            str(to),
            "--output",
            str(tmp_path / "c.html"),
        )

    fine = compare(same)
    assert (fine.returncode, fine.stderr) == (0, ""), fine.stdout
    assert "nothing got worse" in fine.stdout
    worse = compare(better)
    assert worse.returncode == 4
    assert worse.stderr.startswith("dpprof: 4 of 4 cells got worse than grid é by more than 5 %")
    marked = [line for line in worse.stdout.splitlines() if "WORSE" in line]
    assert len(marked) == 4
    assert all(what in line for line in marked)


def test_the_limit_is_the_users(swept: Path, tmp_path: Path) -> None:
    better = baseline(swept, tmp_path / "better.json", scale("memory/peak_allocated_mib", 1 / 1.1))
    arguments = ["compare", SWEEP, "--baseline", str(better), "--output", str(tmp_path / "c.html")]
    fine = call_dpprof(swept, *arguments, "--fail-above", "11%")
    assert fine.returncode == 0
    assert "nothing got worse; 4 of 8 figures were not judged" in fine.stdout, "times of one run each"
    assert call_dpprof(swept, *arguments, "--fail-above", "9").returncode == 4


def test_a_sweep_is_its_own_baseline(swept: Path, tmp_path: Path) -> None:
    ended = call_dpprof(swept, "compare", SWEEP, "--baseline", "grid é", "--output", str(tmp_path / "c.html"))
    assert ended.returncode == 0, ended.stderr
    assert re.search("not judged: (too few timed steps|the machine was disturbed)", ended.stdout)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "\x00"])
def test_a_file_that_is_no_baseline_is_refused(swept: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    ended = call_dpprof(
        swept, "compare", SWEEP, "--baseline", str(tmp_path / "bad.json"), "--output", str(tmp_path / "c")
    )
    assert ended.returncode == 2
    assert "allowed: among files those of `dpprof export --format json`" in ended.stderr
