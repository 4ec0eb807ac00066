"""What MLflow gets to know of an experiment beside its figures."""

import dataclasses

import pytest
from example_results import result

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.training import SIZE_FIELDS
from dpprof.tracking.contents import params_of, short_name


def test_a_model_that_its_workload_names_has_no_sizes_among_its_params() -> None:
    built_in = params_of(result("DPSGDTrainer"))
    assert (built_in["model_size"], built_in["resolved_vocab_size"]) == ("tiny", 1000)
    named = params_of(result("DPSGDTrainer", workload="huggingface:gpt2"))
    assert named["resolved_device"] == "cpu"
    assert not {"model_size", *SIZE_FIELDS} & {name.removeprefix("resolved_") for name in named}


GHOST = ExperimentConfig(trainer="DPGhostClippingTrainer", batch_size=4, seq_len=512, model_size="small")
GHOST = GHOST.resolve(cuda_available=False)


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("", "ghost b4 s512"),
        ("_bf16", "ghost b4 s512 bf16"),
        ("_rep2", "ghost b4 s512 #2"),
        ("_bf16_rep12", "ghost b4 s512 bf16 #12"),
        ("_measured", "ghost b4 s512 measured"),
    ],
)
def test_what_a_full_name_tells_beside_trainer_and_sizes_is_kept(rest: str, expected: str) -> None:
    assert short_name(GHOST.run_name + rest, GHOST, with_model=False) == expected


def test_the_model_is_named_where_asked_for() -> None:
    assert short_name(GHOST.run_name + "_rep2", GHOST, with_model=True) == "ghost b4 s512 small #2"


def test_what_trains_is_named_if_it_is_not_all() -> None:
    lora = dataclasses.replace(GHOST, train="lora")
    assert short_name(lora.run_name + "_rep2", lora, with_model=False) == "ghost b4 s512 lora8 #2"
    assert short_name(lora.run_name, lora, with_model=True) == "ghost b4 s512 small-lora8"


def test_a_renamed_folder_keeps_its_name() -> None:
    assert short_name("before the fix", GHOST, with_model=True) == "before the fix"


def test_an_unknown_trainer_has_its_own_name() -> None:
    config = dataclasses.replace(GHOST)
    object.__setattr__(config, "trainer", "TheirTrainer")
    assert short_name(config.run_name, config, with_model=False) == "TheirTrainer b4 s512"
