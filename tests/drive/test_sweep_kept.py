"""What a sweep keeps of an earlier one, and says when it is stopped before it came to all of that."""

from pathlib import Path

from example_results import result

from dpprof.config.drive import DriveConfig
from dpprof.drive.campaign import Planned
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.sweep import Sweep
from dpprof.figures.results import Result
from dpprof.record.record import PassOutcome


def test_a_stop_leaves_no_kept_result_out_of_the_comparison(tmp_path: Path) -> None:
    kept = {one.name: one for one in (result("StandardTrainer"), result("DPSGDTrainer"))}
    sweep = Sweep(
        "s",
        DriveConfig(runs_dir=str(tmp_path)),
        LocalLauncher(),
        {name: one.config for name, one in kept.items()},
        kept=kept,
    )
    sweep.folder.path.mkdir()
    sweep.results.append(next(iter(kept.values())))
    sweep.stop.request()
    sweep.summarize()
    assert sweep.compared is not None
    assert len(sweep.compared.comparison.cells) == 2
    assert len(sweep.results) == 2


def test_an_estimate_of_a_larger_model_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    config = result(passes="estimate").config
    drive = DriveConfig(runs_dir=str(tmp_path))
    sweep = Sweep("s", drive, LocalLauncher(), {"a": config}, foreseen={"e": config})
    sweep.parent = "a run"
    folder = sweep.folder.foreseen.run("e")
    done: list[str] = []

    def run_one(planned: Planned) -> Result:
        done.append(planned.name)
        return result()

    for status, expected in (("running", ["e"]), ("finished", [])):
        folder.create(config)
        record = result(step_s=0.1, passes="estimate", outcomes={"estimate": PassOutcome(status)}).record
        assert record is not None
        folder.write_record(record)
        _, *foreseen = sweep.stages()
        for stage in foreseen:
            for task in stage.tasks:
                task(run_one)
        assert done == expected
        done.clear()
