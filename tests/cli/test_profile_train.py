"""What a user sees of a part of a model that trains: names, tags, metrics, refusals."""

from pathlib import Path

from conftest import fine, measure_here, runs_of

SMALL = ["--model-size", "tiny", "--num-layers", "1", "--batch-size", "2", "--seq-len", "8"]
SMALL += ["--measured-steps", "2", "--passes", "clean"]


def test_what_trains_is_in_names_tags_and_metrics(tmp_path: Path) -> None:
    fine(measure_here(tmp_path, "profile", *SMALL, "--train", "bias", "--trainer", "bk"))
    (name, run), *others = runs_of(tmp_path).items()
    assert not others
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
    assert run.data.tags["dpprof.failure_reason"].startswith(
        "ConfigError: train: got 'layer.*', allowed: all"
    )
