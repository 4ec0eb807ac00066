import dataclasses

import pytest
from conftest import refusal

from dpprof.config.flat import parse_experiment, to_flat
from dpprof.config.measuring import MeasuringConfig
from dpprof.drive.planned_row import PlannedRow
from dpprof.record.record import Predicted

SETTINGS = {"trainer": "bk", "model_size": "tiny", "batch_size": 8, "accumulation_steps": 3, "norm": "gram"}
DEFAULTS = {"trainer": "StandardTrainer", "batch_size": "4", "accumulation_steps": "1", "passes": "clean"}


def row() -> PlannedRow:
    config = parse_experiment(SETTINGS, MeasuringConfig)
    return PlannedRow(to_flat(config), Predicted("plan"))


def test_what_is_given_comes_first() -> None:
    filled = row().fill(DEFAULTS, "profile")
    assert filled.items() >= DEFAULTS.items()
    assert filled["model_size"] == "tiny"
    assert "norm" not in filled, "an option of the plan's trainer"


def test_without_a_parallel_way_there_is_one_rank() -> None:
    asked = parse_experiment(SETTINGS | {"parallel": "ddp", "world_size": 8}, MeasuringConfig)
    of_ranks = PlannedRow(to_flat(asked), Predicted("plan"))
    assert of_ranks.fill({}, "profile")["world_size"] == 8
    filled = of_ranks.fill({"parallel": "none"}, "profile")
    config = parse_experiment(filled, MeasuringConfig)
    assert config.world_size == 1
    assert of_ranks.differences(config)[0] == "parallel is none, in the plan ddp"


def test_the_headroom_is_for_commands_that_take_one() -> None:
    kept = dataclasses.replace(row(), headroom="0%")
    assert kept.fill({}, "advise")["headroom"] == "0%"
    assert kept.fill({"headroom": "5%"}, "advise")["headroom"] == "5%"
    assert "headroom" not in kept.fill({}, "profile")


def test_a_row_for_many_gpus_is_not_started_on_the_processor_unless_it_is_made_small() -> None:
    on_gpus = SETTINGS | {"device": "cuda", "parallel": "ddp", "world_size": 8}
    config = to_flat(parse_experiment(on_gpus, MeasuringConfig))
    large = PlannedRow(config, Predicted("plan", peak_bytes=2**38))
    on_cpu: dict[str, object] = {"device": "cpu"}
    said = {"its row may not fit this machine": on_cpu, "torch finds no CUDA device here": {}}
    for words, given in said.items():
        assert words in refusal(large.fill, given, "profile", has_cuda=False)
    assert large.fill(on_cpu | {"model_size": "mini"}, "profile", has_cuda=False)["model_size"] == "mini"
    assert large.fill({}, "profile", has_cuda=True)["device"] == "cuda"
    assert large.fill(on_cpu, "advise")["device"] == "cpu", "an estimate"
    small = PlannedRow(config, Predicted("plan", peak_bytes=2**20))
    assert small.fill(on_cpu, "verify", has_cuda=False)["device"] == "cpu"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"noise_multiplier": 0.5, "max_grad_norm": 2.0, "seed": 3}, []),
        ({"momentum": 0.9}, ["momentum is 0.9, in the plan 0.0"]),
        ({"noise_multiplier": 0.0}, ["noise_multiplier is 0: no noise is drawn"]),
        ({"norm": "blocked"}, ["the options of its trainer or workload are others"]),
    ],
)
def test_what_memory_or_time_depends_on_is_not_compared(other: dict[str, object], said: list[str]) -> None:
    assert row().differences(parse_experiment({**SETTINGS, **other}, MeasuringConfig)) == said
