"""The guide and its screenshots."""

import re
from pathlib import Path

from conftest import ROOT
from mlflow import MlflowClient

GUIDE = ROOT / "docs" / "comparing_runs.md"


def test_every_screenshot_is_shown_and_every_shown_one_exists() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", GUIDE.read_text())
    there = [f"screenshots/{path.name}" for path in (ROOT / "docs" / "screenshots").iterdir()]
    assert sorted(shown) == sorted(there)


def test_the_script_takes_every_screenshot() -> None:
    script = (ROOT / "scripts" / "make_screenshots.py").read_text()
    lists = re.findall(r"^(?:MLFLOW|TENSORBOARD)_SHOTS: .* = \[([^\]]+)\]", script, re.MULTILINE)
    taken = re.findall(r"\w+", " ".join(lists))
    assert sorted(taken) == sorted(path.stem for path in (ROOT / "docs" / "screenshots").iterdir())


def test_mlflow_understands_every_filter(swept: Path) -> None:
    client = MlflowClient(f"sqlite:///{swept}/mlflow.db")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    filters = re.findall(r"^\| `(\w+\..+?)` \|", GUIDE.read_text(), re.MULTILINE)
    assert len(filters) > 3
    found = {condition: client.search_runs(experiments, condition) for condition in filters}
    names = [run.info.run_name for run in found['tags.dpprof.kind = "sweep"']]
    assert names == ["grid é"]
