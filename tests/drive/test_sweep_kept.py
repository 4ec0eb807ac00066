"""What a sweep says when it is stopped before it came to all results that it keeps."""

from pathlib import Path

from example_results import result

from dpprof.config.drive import DriveConfig
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.sweep import Sweep


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
