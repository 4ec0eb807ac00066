"""What MLflow gets to know of an experiment beside its figures."""

from example_results import result

from dpprof.config.training import SIZE_FIELDS
from dpprof.tracking.contents import params_of


def test_a_model_that_its_workload_names_has_no_sizes_among_its_params() -> None:
    built_in = params_of(result("DPSGDTrainer"))
    assert (built_in["model_size"], built_in["resolved_vocab_size"]) == ("tiny", 1000)
    named = params_of(result("DPSGDTrainer", workload="huggingface:gpt2"))
    assert named["resolved_device"] == "cpu"
    assert not {"model_size", *SIZE_FIELDS} & {name.removeprefix("resolved_") for name in named}
