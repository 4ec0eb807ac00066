"""What a sweep keeps: results of an earlier one, and estimates of a larger model."""

from pathlib import Path

import pytest
from conftest import runs_of
from example_results import result
from example_runs import known
from example_sweeps import sweep_in

from dpprof.cli.progress import Progress
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat
from dpprof.drive.campaign import Planned, run_campaign
from dpprof.drive.sweep import Sweep, reusable_results
from dpprof.pages.run_reports import write_run_reports
from dpprof.record.figures.results import Result, describe, read_result
from dpprof.record.record import Failure, FailureKind, PassOutcome, PassStatus
from dpprof.tracking.tracker import Tracker


def test_a_stop_leaves_no_kept_result_out_of_the_comparison(tmp_path: Path) -> None:
    kept = {one.name: one for one in (result("StandardTrainer"), result("DPSGDTrainer"))}
    sweep = sweep_in(tmp_path, {name: one.config for name, one in kept.items()}, kept=kept)
    sweep.folder.path.mkdir()
    sweep.results.append(next(iter(kept.values())))
    sweep.stop.request()
    sweep.summarize()
    assert len(known(sweep.reports).data.comparison.cells) == 2
    assert len(sweep.results) == 2


def test_an_estimate_of_a_larger_model_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    config = result(passes="estimate").config
    sweep = sweep_in(tmp_path, {"a": config}, foreseen={"e": config})
    sweep.parent = "a run"
    folder = sweep.folder.foreseen.run("e")
    done: list[str] = []

    def run_one(planned: Planned) -> Result:
        done.append(planned.name)
        return result()

    for status, expected in ((PassStatus.RUNNING, ["e"]), (PassStatus.FINISHED, [])):
        folder.create(config)
        made = result(step_s=0.1, passes="estimate", outcomes={"estimate": PassOutcome(status)})
        folder.write_record(known(made.record))
        _, *foreseen = sweep.stages()
        for stage in foreseen:
            for task in stage.tasks:
                task(run_one)
        assert done == expected
        done.clear()


TINY = {"num_layers": 1, "hidden_dim": 32, "num_heads": 2, "vocab_size": 64, "seq_len": 8}


def tiny(trainer: str, **more: object) -> ExperimentConfig:
    return from_flat({"trainer": trainer, "model_size": "tiny", **TINY, **more}).resolve(cuda_available=True)


def sweep_of(folder: Path) -> Sweep:
    """One experiment, and an estimate of two DP trainers for an H100."""
    measured = tiny("standard", device="cpu", batch_size=1, passes="clean", warmup_steps=1, measured_steps=1)
    estimates = [
        tiny(trainer, device="cuda", batch_size=2, passes="estimate", target="H100", savings=False)
        for trainer in ("flat", "ghost")
    ]
    foreseen = {config.run_name: config for config in estimates}
    return sweep_in(folder, {measured.run_name: measured}, "mine", foreseen=foreseen)


def test_they_are_no_runs_but_the_verdict_tells_them_and_only_what_failed_is_estimated_again(
    mlflow_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of(mlflow_store)
    run_campaign(sweep, Tracker(), Progress(), write_run_reports)
    assert "[3/3]" in capsys.readouterr().out
    assert len(sweep.results) == 1
    kept = sweep.folder.foreseen.runs()
    assert [folder.name for folder in kept] == sorted(sweep.foreseen)
    for folder in kept:
        assert folder.ledger.exists()
        assert not [*folder.path.glob("*.html"), *folder.path.glob("*.png"), *folder.path.glob("*peak*")]
    runs = runs_of(mlflow_store)
    assert set(runs) == {"mine", *sweep.experiments}
    told, waits = (
        next(finding for finding in known(sweep.reports).data.findings if finding.topic == topic)
        for topic in ("Estimate", "Launch-bound")
    )
    assert "the GPU is predicted to wait more than half of the step for the host" in waits.text
    assert "is launch-bound: the GPU waits " in describe(read_result(kept[0]))
    assert "on H100 (79.1 GiB), batch 2, sequence 8, estimates say: start with" in told.text
    assert told.text in sweep.folder.summary_markdown.read_text(encoding="utf-8")
    assert told.text in runs["mine"].data.tags["mlflow.note.content"]

    kept[1].write_error(Failure(FailureKind.KILLED, "stopped"))
    again = sweep_of(mlflow_store)
    again.parent = "as before"
    kept[0].record.write_text("[]")
    assert reusable_results(again).keys() == sweep.experiments.keys()
    said = f"done again: {kept[0].name}: {kept[0].record} cannot be read: it is no record of dpprof's"
    assert again.damaged == [said]
    _, estimates = again.stages()
    assert len(estimates.tasks) == 2
