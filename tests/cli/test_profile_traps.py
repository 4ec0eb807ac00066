"""What a user sees of a limit of Opacus: on the terminal, in the run folder and in MLflow."""

from pathlib import Path

from conftest import call_dpprof, fine, measure_here, runs_of

from dpprof.drive.sources import read_comparison
from dpprof.findings.comparison.doubts import doubts
from dpprof.measure.trainers.opacus.foreseen import SENTENCES, WARNINGS
from dpprof.record.folder import RunFolder

SMALL = ["--measured-steps", "2", "--batch-size", "3", "--seq-len", "4", "--passes", "clean"]


def run_folder(folder: Path) -> RunFolder:
    (config,) = folder.glob("runs/*/*/config.json")
    return RunFolder(config.parent)


def test_a_trap_is_named_everywhere_and_the_original_error_is_kept(tmp_path: Path) -> None:
    tied = ["--trainer", "ghost", "--workload", "example_trapped:tied"]
    ended = call_dpprof(tmp_path, "profile", *tied, *SMALL)
    assert ended.returncode == 3
    sentence = "WorkloadError: " + SENTENCES["tied"].format(
        modules="tokens and head", parameter="tokens.weight"
    )
    assert f"failed (error): {sentence}" in ended.stdout
    folder = run_folder(tmp_path)
    failure = folder.read_error()
    assert failure is not None
    assert failure.message == sentence
    original = "NotImplementedError: Parameter tying is not supported with Ghost Clipping"
    assert original in (failure.traceback or "")
    assert original in folder.log.read_text()
    (run,) = runs_of(tmp_path).values()
    assert run.data.tags["dpprof.failure_reason"] == sentence
    assert sentence in run.data.tags["mlflow.note.content"]


def test_a_warning_is_told_once_and_kept(tmp_path: Path) -> None:
    arguments = ["--trainers", "flat,standard,fast", "--workload", "example_trapped:vision"]
    sizes = ["--batch-sizes", "3", "--seq-lens", "4", "--measured-steps", "2", "--passes", "clean"]
    ended = fine(measure_here(tmp_path, "sweep", *arguments, *sizes, "--sweep-name", "raw"))
    sentence = WARNINGS["raw"].format(module="the model", parameters="cls_token, pos_embed")
    assert ended.stdout.count(f"warning: {sentence}") == 1
    runs = runs_of(tmp_path)
    assert runs["DPSGDTrainer_vision_bs3_seq4"].data.tags["dpprof.warnings"] == sentence
    assert "dpprof.warnings" not in runs["StandardTrainer_vision_bs3_seq4"].data.tags
    comparison, _ = read_comparison([str(tmp_path / "runs" / "raw")], tmp_path, lambda text: None)
    assert f"{sentence[0].upper()}{sentence[1:]} (2 of 3 runs)." in doubts(comparison)
