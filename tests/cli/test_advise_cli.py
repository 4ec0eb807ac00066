"""`dpprof advise` with real estimates and a real store."""

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from conftest import Ended, fine, lay_out_store, measure_here, runs_of
from covering import sampled
from example_runs import known

from dpprof.record.figures.capacity import needed_bytes
from dpprof.record.figures.results import Result, read_result
from dpprof.record.folder import RunFolder

# For CUDA, as no operator is then tried on this machine. Of 1,843 MiB flat needs 1,775, bk 912, and four
# samples at a time 1,022; 512 MiB are the context's, 16 cuBLAS's. Expandable segments save flat nothing.
SIZES = ("--num-layers", "1", "--hidden-dim", "1024", "--workers", "1")
MODEL = ("--model-size", "tiny", "--seq-len", "128", "--batch-size", "16", *SIZES)
ADVISE = (*MODEL, "--trainers", "flat,bk", "--device-memory-gib", "1.8")


@cache
def place() -> Path:
    folder = Path(mkdtemp())
    lay_out_store(folder)
    return folder


@cache
def advised(headroom: str) -> tuple[Ended, Path, dict[str, Any]]:
    """What a command gave, its folder, and its data. Another headroom needs few other estimates."""
    before = set(place().glob("runs/advice-*"))
    ended = fine(measure_here(place(), "advise", *ADVISE, "--headroom", headroom))
    (folder,) = set(place().glob("runs/advice-*")) - before
    return ended, folder, json.loads((folder / "advice.json").read_text())


def lacking() -> tuple[Ended, Path, dict[str, Any]]:
    """Flat does not fit, and bk does."""
    return advised("35%")


def by_name(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {change["name"]: change for change in data["changes"]}


def estimated(**settings: str) -> Result:
    """What `dpprof estimate` says of one experiment."""
    name = "_".join(settings.values())
    values = {"model_sizes": "tiny", "seq_lens": "128", "savings": "false", "sweep_name": name} | settings
    options = [word for n, v in values.items() for word in (f"--{n.replace('_', '-')}", v)]
    fine(measure_here(place(), "estimate", *SIZES, *options))
    (folder,) = place().glob(f"runs/{name}/*/record.json")
    return read_result(RunFolder(folder.parent))


def test_what_makes_it_fit_comes_first() -> None:
    ended, folder, data = lacking()
    assert data["fits"] is False
    verdicts = [(change["name"], change["verdict"]) for change in data["changes"]]
    assert verdicts[:2] == [("bk", "fits"), ("physical batch 4", "fits")]
    not_alone = ["bf16", "activation checkpointing", "the lean loop"]
    assert [name for name, verdict in verdicts if verdict == "not alone"] == not_alone
    assert data["together"] is None
    assert data["answer"].startswith("It does not fit 1.8 GiB with 35% kept free: it needs 1.8 GiB")
    assert "Alone, bk makes it fit" in " ".join(ended.stdout.split())
    assert (folder / "advice.html").read_text().count('class="answer"') == 1
    assert (folder / "advice.md").read_text().startswith(f"# {folder.name}")
    computed = ["noise in place", "vocabulary projection in chunks", "expandable segments"]
    assert [one["name"] for one in data["by_arithmetic"]] == computed
    assert data["experiment"]["trainer"] == "DPSGDTrainer", "private training is the default"
    run = runs_of(place())[folder.name]
    assert (run.info.status, run.data.tags["dpprof.kind"]) == ("FINISHED", "advice")
    assert run.data.params["headroom"] == "35%"


FIGURES = [
    ("bk", {"trainers": "bk", "batch_sizes": "16"}),
    ("physical batch 4", {"trainers": "flat", "batch_sizes": "4", "accumulation_steps": "4"}),
    ("the lean loop", {"trainers": "flat", "batch_sizes": "16", "loop": "lean"}),
    ("bf16", {"trainers": "flat", "batch_sizes": "16", "precisions": "bf16"}),
]


@pytest.mark.parametrize(("name", "settings"), sampled(FIGURES, FIGURES[:2]))
def test_figures_are_those_of_an_estimate_of_the_changed_experiment(
    name: str, settings: dict[str, str]
) -> None:
    change, result = by_name(lacking()[2])[name], estimated(**settings)
    ledger = known(known(result.record).ledger)
    # Of four physical batches three were estimated: the ids of the other are not in it.
    other_ids = 2 * 4 * 8 * 128 if "accumulation_steps" in settings else 0
    assert change["needed_bytes"] == pytest.approx(needed_bytes(result.config, ledger), abs=other_ids)
    assert change["flops"] == ledger.moved_in_step.flops
    assert change["moved_bytes"] == ledger.moved_in_step.num_bytes


def test_what_fits_is_told_what_is_cheaper() -> None:
    _, _, data = advised("0%")
    assert data["fits"] is True
    assert data["together"] is None
    assert data["changes"][0]["name"] == "bk"
    assert data["changes"][0]["verdict"] == "less time"
    assert "With bk it takes the fewest FLOPs" in data["answer"]
    assert "physical batch 8" in by_name(data)


def test_changes_are_put_together_where_none_suffices() -> None:
    _, _, data = advised("57%")
    assert data["fits"] is False
    assert not any(change["fits"] for change in data["changes"])
    together = data["together"]
    assert together["fits"]
    assert together["name"].startswith("bk")
    assert " and " in together["name"]
    assert together["alters"] != "learned"
    for folder in together["estimates"]:
        result = read_result(RunFolder(place() / folder))
        ledger = known(known(result.record).ledger)
        assert together["needed_bytes"] == needed_bytes(result.config, ledger)


def test_a_second_advice_makes_no_estimate_again() -> None:
    lacking()
    before = {path.parent for path in place().glob("runs/*/*/record.json")}
    _, _, data = advised("35.1%")
    assert {path.parent for path in place().glob("runs/*/*/record.json")} == before
    assert data["given"]["estimates"] == lacking()[2]["given"]["estimates"]


def test_a_change_that_fails_is_left_out_with_its_reason(tmp_path: Path) -> None:
    own = ("--workload", "example_workloads:mlp", "--batch-size", "4", "--device", "cpu", "--workers", "1")
    fine(measure_here(tmp_path, "advise", *own, "--trainers", "ghost", "--trainer", "flat"))
    (path,) = tmp_path.glob("runs/advice-*/advice.json")
    data = json.loads(path.read_text())
    assert data["fits"] is None
    assert "No device is given" in data["answer"]
    assert "activation_checkpointing: got 'True'" in data["left_out"]["activation checkpointing"]


def test_an_experiment_that_cannot_be_estimated_ends_with_its_reason(tmp_path: Path) -> None:
    own = ("--workload", "example_workloads:averaged_loss", "--device", "cpu", "--workers", "1")
    ended = measure_here(tmp_path, "advise", *own)
    assert ended.returncode in (2, 3)
    assert "loss" in ended.stderr
