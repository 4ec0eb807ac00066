"""What MLflow gets to know of an experiment beside its figures."""

import dataclasses

import pytest
from example_results import result

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.training import SIZE_FIELDS
from dpprof.tracking.contents import params_of, short_name
from dpprof.vocabulary.trainers import OWN_LOOP


def test_a_model_that_its_workload_names_has_no_sizes_among_its_params() -> None:
    built_in = params_of(result("DPSGDTrainer"))
    assert (built_in["model_size"], built_in["resolved_vocab_size"]) == ("tiny", 1000)
    named = params_of(result("DPSGDTrainer", workload="huggingface:gpt2"))
    assert named["resolved_device"] == "cpu"
    assert not {"model_size", *SIZE_FIELDS} & {name.removeprefix("resolved_") for name in named}


def test_the_type_of_the_weights_is_a_param_where_it_is_known() -> None:
    assert "resolved_weights_dtype" not in params_of(result("DPSGDTrainer", step_s=0.1))
    short = params_of(result("DPSGDTrainer", step_s=0.1, weights={"fp32": 1, "bf16": 9}))
    assert (short["precision"], short["resolved_weights_dtype"]) == ("fp32", "bf16 and fp32")
    found = result(step_s=0.1, weights={"bf16": 1})
    loop = dataclasses.replace(found, config=dataclasses.replace(found.config, trainer=OWN_LOOP))
    assert params_of(loop)["resolved_weights_dtype"] == "bf16"
    assert "precision" not in params_of(loop)


GHOST = ExperimentConfig(trainer="DPGhostClippingTrainer", batch_size=4, seq_len=512, model_size="small")
GHOST = GHOST.resolve(cuda_available=False)


@pytest.mark.parametrize(
    ("train", "rest", "with_model", "expected"),
    [
        ("all", "", False, "ghost b4 s512"),
        ("all", "_bf16", False, "ghost b4 s512 bf16"),
        ("all", "_bf16_rep12", False, "ghost b4 s512 bf16 #12"),
        ("all", "_measured", False, "ghost b4 s512 measured"),
        ("all", "_rep2", True, "ghost b4 s512 small #2"),
        ("lora", "_rep2", False, "ghost b4 s512 lora8 #2"),
        ("lora", "", True, "ghost b4 s512 small-lora8"),
    ],
)
def test_a_short_name_has_the_trainer_the_sizes_and_what_else_differs(
    train: str, rest: str, with_model: bool, expected: str
) -> None:
    config = dataclasses.replace(GHOST, train=train)
    assert short_name(config.run_name + rest, config, with_model=with_model) == expected


def test_a_renamed_folder_keeps_its_name() -> None:
    assert short_name("before the fix", GHOST, with_model=True) == "before the fix"


def test_an_unknown_trainer_has_its_own_name() -> None:
    config = dataclasses.replace(GHOST)
    object.__setattr__(config, "trainer", "TheirTrainer")
    assert short_name(config.run_name, config, with_model=False) == "TheirTrainer b4 s512"
