"""`dpprof profile` and `sweep` as users run them: what they say, log and end with."""

import json
from pathlib import Path

import pytest
from conftest import Run, call_dpprof, fine, measure_here, runs_of
from example_runs import known, only_run

from dpprof.drive.sources import read_comparison
from dpprof.findings.comparison.doubts import doubts
from dpprof.measure.trainers.opacus.foreseen import SENTENCES, WARNINGS
from dpprof.privacy.accounting import epsilon_of
from dpprof.privacy.guarantee import PrivateSteps

QUICK = ["--warmup-steps", "1", "--measured-steps", "2", "--launcher", "in_process"]
CLEAN = ["--measured-steps", "2", "--passes", "clean"]
SMALL = ["--model-size", "tiny", "--num-layers", "1", "--batch-size", "2", "--seq-len", "8", *CLEAN]
TINY = ["--device", "cpu", "--model-size", "tiny", "--batch-size", "50", "--seq-len", "8", "--trainer", "bk"]
DATA = ["--dataset-size", "50000", "--epochs", "3", "--warmup-steps", "3", "--measured-steps", "2"]
FIXED = "the measured batches have a fixed size"


@pytest.mark.parametrize(
    ("workload", "exit_code", "verdict", "reason"),
    [
        ("with_dropout", 0, "pass", "; checked with dropout off"),
        ("mixing_samples", 3, "fail", "depends on the other samples of its batch"),
        ("with_state", 6, "cannot tell", "draws random numbers or keeps state"),
        ("without_float64", 6, "cannot tell", "the check itself failed: RuntimeError: float64 is beyond me"),
    ],
)
def test_the_gradient_check_judges(
    called: Run, tmp_path: Path, workload: str, exit_code: int, verdict: str, reason: str
) -> None:
    arguments = ["--workload", f"example_checked:{workload}", "--trainer", "flat", *QUICK]
    arguments += ["--batch-size", "4", "--seq-len", "1"]
    ended = called("profile", *arguments, "--passes", "clean,gradient_check")
    assert ended.returncode == exit_code, ended.stdout + ended.stderr
    judged = {0: "", 3: "the gradient check failed in 1 ", 6: "the gradient check could not tell in 1 "}
    assert judged[exit_code] in ended.stderr
    (line,) = [line for line in ended.stdout.splitlines() if " ms" in line]
    assert f"; gradient check: {'FAIL' if verdict == 'fail' else verdict} (" in line
    assert reason in line
    (run,) = runs_of(tmp_path).values()
    assert run.data.tags["dpprof.gradient_check"] == verdict
    assert reason in run.data.tags["dpprof.gradient_check_reason"]
    assert run.info.status == "FINISHED", "the clean figures stand"
    assert run.data.metrics["latency/step_ms_median"] > 0
    assert ("gradient_check/relative_error_float64" in run.data.metrics) == (verdict == "pass")


def test_losses_that_are_not_finite_are_told_without_a_check(called: Run, tmp_path: Path) -> None:
    arguments = ["--workload", "example_checked:nan_losses", "--trainer", "flat", *QUICK]
    arguments += ["--batch-size", "4", "--accumulation-steps", "3", "--dataset-size", "1000"]
    ended = fine(called("profile", *arguments, "--passes", "clean"))
    lines = ended.stdout.splitlines()
    said = "; 24 of 24 losses are NaN or infinite; no epsilon: 24 of 24 losses are NaN or infinite"
    assert sum(said in line for line in lines) == 1
    assert any(line.startswith("warning: 24 of 24 losses are NaN or infinite") for line in lines)
    (run,) = runs_of(tmp_path).values()
    assert run.data.tags["dpprof.nonfinite_losses"] == "24 of 24 losses are NaN or infinite"
    assert run.data.metrics["loss/nonfinite"] == 24
    assert "privacy/epsilon" not in run.data.metrics.keys() | run.data.params.keys()
    assert run.data.metrics["privacy/sample_rate"] == 0.012
    assert not list(tmp_path.glob("runs/*/*/run.log")), "that of a child"


def test_a_sweep_with_a_failed_check_says_so_everywhere(tmp_path: Path) -> None:
    arguments = ["--workload", "example_checked:mixing_samples", "--trainers", "standard,flat"]
    arguments += ["--batch-sizes", "4", "--seq-lens", "1", "--passes", "clean,gradient_check", *QUICK]
    ended = call_dpprof(tmp_path, "sweep", *arguments, "--sweep-name", "s")
    assert ended.returncode == 3, ended.stdout + ended.stderr
    failed = "DPSGDTrainer_mixing_samples_bs4_seq1"
    assert ended.stderr.endswith(f"the gradient check failed in 1 of 2 experiments: {failed}\n")
    assert runs_of(tmp_path)["s"].info.status == "FAILED"
    assert runs_of(tmp_path)[failed].info.status == "FINISHED"
    for text in (ended.stdout, (tmp_path / "runs" / "s" / "summary.md").read_text()):
        assert f"The gradient check failed in 1 of 2 runs ({failed})" in text
        assert "The gradient check could not tell in 1 of 2 runs (StandardTrainer" in text


def test_what_trains_is_in_names_tags_and_metrics(tmp_path: Path) -> None:
    fine(measure_here(tmp_path, "profile", *SMALL, "--train", "bias", "--trainer", "bk"))
    ((name, run),) = runs_of(tmp_path).items()
    assert name == "DPBookKeepingTrainer_tiny-layers1-bias_bs2_seq8"
    trainable, frozen = (run.data.metrics[f"parameters/{kind}"] for kind in ("trainable", "frozen"))
    assert trainable + frozen == int(run.data.params["num_parameters"])
    said = f"{trainable:,.0f} of {trainable + frozen:,.0f} parameters train, the others are frozen"
    assert run.data.tags["dpprof.changed"] == f"train=bias: {said}"
    assert run.data.params["train"] == "bias"


def test_a_pattern_that_matches_nothing_fails_the_run_and_names_the_option(tmp_path: Path) -> None:
    ended = measure_here(tmp_path, "profile", *SMALL, "--train", "layer.*")
    assert ended.returncode == 3
    (run,) = runs_of(tmp_path).values()
    said = "ConfigError: train: got 'layer.*', allowed: all"
    assert run.data.tags["dpprof.failure_reason"].startswith(said)


def test_a_limit_of_opacus_is_named_everywhere_and_the_original_error_is_kept(tmp_path: Path) -> None:
    tied = ["--trainer", "ghost", "--workload", "example_trapped:tied", "--batch-size", "3", "--seq-len", "4"]
    ended = call_dpprof(tmp_path, "profile", *tied, *CLEAN)
    assert ended.returncode == 3
    limit = SENTENCES["tied"].format(modules="tokens and head", parameter="tokens.weight")
    sentence = f"WorkloadError: {limit}"
    assert f"failed (error): {sentence}" in ended.stdout
    folder = only_run(tmp_path)
    failure = known(folder.read_error())
    assert failure.message == sentence
    original = "NotImplementedError: Parameter tying is not supported with Ghost Clipping"
    assert original in known(failure.traceback)
    assert original in folder.log.read_text()
    (run,) = runs_of(tmp_path).values()
    assert run.data.tags["dpprof.failure_reason"] == sentence
    assert sentence in run.data.tags["mlflow.note.content"]


def test_a_warning_is_told_once_and_kept(tmp_path: Path) -> None:
    arguments = ["--trainers", "flat,standard,fast", "--workload", "example_trapped:vision", *CLEAN]
    sizes = ["--batch-sizes", "3", "--seq-lens", "4", "--sweep-name", "raw"]
    ended = fine(measure_here(tmp_path, "sweep", *arguments, *sizes))
    sentence = WARNINGS["raw"].format(module="the model", parameters="cls_token, pos_embed")
    assert ended.stdout.count(f"warning: {sentence}") == 1
    runs = runs_of(tmp_path)
    assert runs["DPSGDTrainer_vision_bs3_seq4"].data.tags["dpprof.warnings"] == sentence
    assert "dpprof.warnings" not in runs["StandardTrainer_vision_bs3_seq4"].data.tags
    comparison, _ = read_comparison([str(tmp_path / "runs" / "raw")], tmp_path, lambda text: None)
    assert f"{sentence[0].upper()}{sentence[1:]} (2 of 3 runs)." in doubts(comparison)


def test_the_guarantee_of_a_run_on_data_of_known_size(tmp_path: Path) -> None:
    ended = fine(measure_here(tmp_path, "profile", *TINY, *DATA, "--passes", "clean,ledger"))
    told = epsilon_of(1.0, PrivateSteps(sample_rate=0.001, steps=3000, delta=1e-6))
    assert "; epsilon 0.3" in ended.stdout
    assert "at delta 1e-06 if Poisson-sampled" in ended.stdout
    folder = only_run(tmp_path)
    kept = json.loads(folder.record.read_text())["privacy"]
    assert (kept["epsilon"], kept["accountant"]) == (pytest.approx(told.epsilon), told.accountant)
    (run,) = runs_of(tmp_path).values()
    expected = {
        "privacy/epsilon": told.epsilon,
        "privacy/delta": 1e-6,
        "privacy/noise_multiplier": 1.0,
        "privacy/sample_rate": 0.001,
        "privacy/steps": 3000,
    }
    logged = {name: value for name, value in run.data.metrics.items() if name.startswith("privacy/")}
    assert logged == pytest.approx(expected)
    params = {name: float(run.data.params[name]) for name in expected}
    assert params == pytest.approx(expected)
    assert run.data.params["privacy/steps"] == "3000"
    assert (run.data.params["dataset_size"], run.data.params["epochs"]) == ("50000", "3.0")
    assert FIXED in run.data.tags["dpprof.privacy"]
    shown = call_dpprof(tmp_path, "show", str(folder.path)).stdout
    for text in (shown, folder.timeline_page.read_text()):
        words = " ".join(text.split())
        assert "privacy of the whole training" in words
        assert "3,000 steps at sample rate 0.001 with noise multiplier 1" in words
        assert FIXED in words


def test_poisson_sampled_batches_need_no_excuse(called: Run, tmp_path: Path) -> None:
    sampled = ("--poisson-sampling", "true", "--launcher", "in_process", "--passes", "clean")
    ended = fine(called("profile", *TINY, *DATA, *sampled))
    assert "if Poisson-sampled" not in ended.stdout
    assert known(known(only_run(tmp_path).read_record()).privacy).weakened == []


def test_a_later_pass_that_fails_does_not_take_the_guarantee_away(
    called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("example_workloads._models_built", 0)
    arguments = ["--workload", "example_workloads:fails_in_memory_pass", "--trainer", "flat"]
    arguments += ["--batch-size", "4", "--seq-len", "8", "--dataset-size", "1000"]
    ended = called("profile", *arguments, "--passes", "clean,memory", "--launcher", "in_process")
    assert "memory pass failed" in ended.stdout
    assert "; epsilon " in ended.stdout
    record = known(only_run(tmp_path).read_record())
    assert record.failed_passes
    assert known(record.privacy).epsilon is not None
