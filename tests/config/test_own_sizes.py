"""Workloads whose name says how large the model is."""

import pytest

from dpprof.config.grid import build_grid
from dpprof.errors import ConfigError

GIVEN = {"workload": "huggingface:gpt2"}


def test_a_model_that_its_workload_names_has_no_other_size() -> None:
    found = build_grid(GIVEN, cuda_available=lambda: False).experiments.values()
    assert {(config.model_size, config.hidden_dim) for config in found} == {("auto", 0)}
    with pytest.raises(
        ConfigError, match="model_sizes: got 'tiny,mini', allowed: auto with huggingface:gpt2"
    ):
        build_grid(GIVEN | {"model_sizes": "tiny,mini"}, cuda_available=lambda: False)
