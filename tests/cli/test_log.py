"""Folders that are logged later, into one real store."""

import json
from itertools import product
from pathlib import Path

import pytest
from conftest import Ended, call_dpprof, fine, runs_of
from example_results import result
from example_runs import known

from dpprof.record.folder import RunFolder, SweepFolder, SweepState
from dpprof.record.record import Failure, FailureKind

FINISHED, INTERRUPTED = "StandardTrainer_tiny_bs2_seq16", "DPSGDTrainer_tiny_bs2_seq16"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of three experiments, of which one finished and one was interrupted, and a search."""
    home = tmp_path_factory.mktemp("log")
    for sweep, name in product(("grid", "search"), (FINISHED, INTERRUPTED)):
        made = result(name.partition("_")[0], step_s=0.5, batch_size=2, seq_len=16, passes="clean")
        run = RunFolder(home / "runs" / sweep / name)
        run.create(made.config)
        if name == INTERRUPTED:
            run.write_error(Failure(FailureKind.INTERRUPTED, "stopped by the user"))
        else:
            run.write_record(known(made.record))
    state = SweepState("sweep", [INTERRUPTED, FINISHED, "never begun"])
    SweepFolder(home / "runs" / "grid").write_state(state)
    search = SweepFolder(home / "runs" / "search")
    search.write_state(SweepState("fit"))
    search.run(FINISHED).mlflow.write_text("{}")
    (search.path / "fit.md").write_text("the answers")
    (search.path / "fit.json").write_text(json.dumps([{"trainer": "standard", "size": 2}]))
    return home


@pytest.fixture(scope="module")
def logged(folder: Path) -> Ended:
    return call_dpprof(folder, "log", "runs/grid", f"runs/grid/{FINISHED}", "runs/search")


def test_what_was_interrupted_is_logged_and_the_others_too(folder: Path, logged: Ended) -> None:
    fine(logged)
    statuses = {name: run.info.status for name, run in runs_of(folder).items() if name != "search"}
    assert statuses == {INTERRUPTED: "KILLED", FINISHED: "FINISHED", "grid": "KILLED"}
    said = " ".join(logged.stdout.split())
    assert "runs/grid: 2 of 2 runs are in MLflow" in said
    assert f"runs/grid has no complete figures of {INTERRUPTED}, never begun" in said


def test_of_a_search_only_the_runs_that_were_to_be_logged_are(folder: Path, logged: Ended) -> None:
    parent = runs_of(folder)["search"]
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["mlflow.note.content"] == "the answers"
    assert "runs/search: 1 of 1 runs are in MLflow" in " ".join(logged.stdout.split())


def test_nothing_is_logged_twice(folder: Path, logged: Ended) -> None:
    ids = {name: run.info.run_id for name, run in runs_of(folder).items()}
    fine(call_dpprof(folder, "log", "runs/grid", "runs/search"))
    assert {name: run.info.run_id for name, run in runs_of(folder).items()} == ids
