"""Changes to an experiment: which there are, what they set, what they alter, and why some cannot be made."""

from typing import Any

import pytest
from conftest import refusal

from dpprof.config.changes import (
    LARGER,
    LEARNED,
    ROUNDING,
    SAME,
    Change,
    changed,
    possible_changes,
    smaller_batch,
)
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, TRAINERS


def experiment(**values: Any) -> ExperimentConfig:
    given = {"trainer": "flat", "model_size": "tiny", "device": "cpu", "savings": False} | values
    return parse_experiment(given, EstimatingConfig).resolve(cuda_available=True)


def names(config: ExperimentConfig, trainers: tuple[str, ...] = DEFAULT_TRAINERS) -> list[str]:
    return [change.name for change in possible_changes(config, trainers)[0]]


def test_private_training_can_change_to_every_other_private_trainer() -> None:
    others = ["activation checkpointing", "bf16", "the lean loop", "LoRA"]
    assert names(experiment()) == ["ghost", "fast", "bk", "mixed", *others]


def test_what_is_made_already_is_no_change() -> None:
    made = experiment(activation_checkpointing=True, precision="bf16", loop="lean")
    assert names(made, ()) == ["LoRA"]
    assert names(experiment(train="bias"), ()) == ["activation checkpointing", "bf16", "the lean loop"]
    assert names(experiment(train="bias", precision="tf32", device="cuda", loop="lean"), ())[1:] == ["bf16"]


RANKS, SHARDED = {"parallel": "ddp", "world_size": 4}, {"fsdp2 instead of ddp"}


@pytest.mark.parametrize(
    ("settings", "possible", "impossible"),
    [
        ({"trainer": "standard"}, set(), {"flat", "ghost", "bk"}),
        ({"trainer": "bk"}, {"gram norms", "explicit norms", "blocked norms"}, set()),
        ({"trainer": "mixed", "norm": "gram"}, {"mixed norms"}, set()),
        ({"trainer": "bk"} | RANKS, SHARDED, set()),
        (RANKS, set(), SHARDED),
        ({"device": "cuda", "target": "L4"}, {"bf16"}, set()),
        ({"device": "cuda", "target": "T4"}, set(), {"bf16"}),
    ],
)
def test_changes_depend_on_the_trainer_the_ranks_and_the_device(
    settings: dict[str, Any], possible: set[str], impossible: set[str]
) -> None:
    found = set(names(experiment(**settings)))
    assert possible <= found
    assert not impossible & found


@pytest.mark.usefixtures("limited")
def test_what_cannot_be_is_left_out_with_its_reason() -> None:
    checkpointed = experiment(activation_checkpointing=True)
    found, left_out = possible_changes(checkpointed, tuple(TRAINERS))
    assert left_out["limited"].startswith("activation_checkpointing: got 'True'")
    assert "LoRA" in {change.name for change in found}
    assert "ghost" in {change.name for change in found}
    own = experiment(workload="example_workloads:mlp", model_size="auto")
    assert possible_changes(own, ())[1].keys() == {"activation checkpointing"}
    slow = experiment(device="cuda", target="T4")
    assert possible_changes(slow, ())[1] == {"bf16": "T4 has no matrix units for bf16"}
    assert "with flat" in possible_changes(experiment(**RANKS), ())[1]["fsdp2 instead of ddp"]


@pytest.mark.usefixtures("limited")
def test_changes_say_what_they_alter() -> None:
    found = {change.name: change.alters for change in possible_changes(experiment(), tuple(TRAINERS))[0]}
    assert {found[name] for name in ("ghost", "bk", "the lean loop")} == {SAME}
    assert found["bf16"] == ROUNDING
    assert {found[name] for name in ("limited", "LoRA")} == {LEARNED}
    layer_wise = experiment(trainer="bk", clipping="layer_wise")
    found = {change.name: change.alters for change in possible_changes(layer_wise, tuple(TRAINERS))[0]}
    assert (found["limited"], found["mixed"], found["flat"]) == (SAME, SAME, LEARNED)


def test_a_changed_experiment_has_the_options_of_its_trainer() -> None:
    bk = changed(experiment(), {"trainer": "DPBookKeepingTrainer", "norm": "blocked"})
    assert bk.options == {"norm": "blocked", "clipping": "flat"}
    assert changed(bk, {"trainer": "DPSGDTrainer"}).options == {}
    assert "norm" in refusal(changed, experiment(), {"norm": "blocked"})


@pytest.mark.parametrize(("size", "steps", "smaller"), [(8, 1, (4, 2)), (9, 2, (3, 6)), (3, 1, (1, 3))])
def test_a_smaller_batch_keeps_the_logical_one(size: int, steps: int, smaller: tuple[int, int]) -> None:
    change = smaller_batch(experiment(batch_size=size, accumulation_steps=steps))
    assert tuple(change.settings.values()) == smaller
    assert change.options == f"--batch-size {smaller[0]} --accumulation-steps {smaller[1]}"


def test_a_batch_that_does_not_divide_becomes_one_near_half_and_the_logical_one_larger() -> None:
    config = experiment(batch_size=151, accumulation_steps=28)
    change = smaller_batch(config)
    assert tuple(change.settings.values()) == (76, 56)
    assert change.name == "physical batch 76 (logical batch 4,256)"
    assert change.alters == LARGER
    again = smaller_batch(changed(config, change.settings), 151 * 28)
    assert tuple(again.settings.values()) == (28, 151), "the logical batch that was given"
    assert again.alters == SAME


@pytest.mark.usefixtures("limited")
def test_a_batch_that_cannot_be_split_is_refused() -> None:
    for values in ({"batch_size": 1}, {"poisson_sampling": True}, {"trainer": "limited"}):
        refusal(smaller_batch, experiment(**values))


def test_options_are_those_of_the_command_line() -> None:
    change = Change("x", "x", {"trainer": "DPSGDTrainer", "activation_checkpointing": True})
    assert change.options == "--trainer flat --activation-checkpointing true"
