"""`dpprof profile` and `sweep` as users run them: what they say, and end with, when figures mislead."""

from pathlib import Path

import pytest
from conftest import Run, call_dpprof, fine, runs_of

QUICK = ["--warmup-steps", "1", "--measured-steps", "2", "--launcher", "in_process"]


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
