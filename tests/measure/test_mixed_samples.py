"""Samples that change the losses of others in their batch are found, and nothing is said of others."""

import dataclasses
import random
from typing import Any

import pytest
import torch
from example_families import SMALL, small

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.mixed_samples import SENTENCES, WARNINGS, mixing_traps
from dpprof.measure.trainers.watched_step import Trap
from dpprof.measure.workloads.workload import build_workload

CONFIG = ExperimentConfig(model_size="tiny", batch_size=3, seq_len=4).resolve(cuda_available=False)


def traps(config: ExperimentConfig) -> list[Trap]:
    workload = build_workload(config)
    return mixing_traps(workload, workload.batches, config)


def of(workload: str) -> list[Trap]:
    return traps(dataclasses.replace(CONFIG, workload=workload))


LOSS = "the workload's loss"
OF_MODEL = ["centred", "less_the_first", "of_neighbours", "over_maximum", "batch_norm_and_centred"]
MIXED = dict.fromkeys([*OF_MODEL, "centred_in_float32"], "the model")
MIXED |= dict.fromkeys(["normalised", "with_gate", "of_capacity"], "middle")
MIXED |= {f"loss_{name}": LOSS for name in ("over_largest", "contrasted", "balanced", "by_frequency")}


@pytest.mark.parametrize("workload", MIXED)
def test_what_mixes_samples_is_named_with_the_change(workload: str) -> None:
    (trap,) = of(f"example_mixing:{workload}")
    before, after = SENTENCES["mixed"].format(module=MIXED[workload], change="by |").split("|")
    assert trap.text.startswith(before)
    assert trap.text.endswith(after)
    percent = float(trap.text.removeprefix(before).removesuffix(after).removesuffix(" %"))
    assert 0 < percent <= 200
    assert (trap.module, trap.is_warning) == (MIXED[workload], False)


def test_the_change_is_that_of_the_samples_own_loss() -> None:
    """Two losses, divided by the larger one: with its copy for the other, the smaller becomes 1."""
    config = dataclasses.replace(CONFIG, workload="example_mixing:loss_over_largest", batch_size=2)
    workload = build_workload(config)
    batch = next(iter(workload.batches))
    losses = workload.loss(workload.model(batch[0]), batch[1]).detach()
    (trap,) = mixing_traps(workload, iter([batch]), config)
    assert f"loss changed by {100 * (1 - float(losses.min())):.3g} %. " in trap.text


FREE = ("experts", "batch_norm", "batch_norm_frozen", "dropout", "dropout_by_function", "partly_float32")


ALL_KINDS = [*(f"example_mixing:{workload}" for workload in FREE), "example_gpt2:plain", "example_gpt2:fixed"]
ALL_KINDS += ["example_workloads:two_tower", "example_layers:tabular"]
SETTINGS: list[dict[str, Any]] = [{"workload": workload} for workload in ALL_KINDS]
SETTINGS += [{}, {"attention": "dp_mha"}, {"data": "zipf"}, {"poisson_sampling": True}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_nothing_is_said_where_samples_do_not_meet(settings: dict[str, Any]) -> None:
    assert traps(dataclasses.replace(CONFIG, **settings)) == []


@pytest.mark.parametrize(("family", "train"), [*((family, "all") for family in SMALL), ("llama-1b", "lora")])
def test_nothing_is_said_of_a_family(family: str, train: str) -> None:
    assert traps(small(family, trainer="DPSGDTrainer", train=train)) == []


CHANGE = "the losses of one batch change from one forward to the next (by "
DRAWS = "with other samples, the model or its loss draws other random numbers"
UNKNOWN = {
    "example_mixing:experts_with_dropout": DRAWS,
    "example_mixing:with_state": CHANGE,
    "example_mixing:own_draws": CHANGE,
    "example_mixing:alike": "all samples of a batch are alike",
    "example_checked:nan_losses": "3 of 3 losses are NaN or infinite",
    "example_broken:small_batches": "no tensor of a batch has a row for each of 3 samples",
}


@pytest.mark.parametrize("workload", UNKNOWN)
def test_where_nothing_can_be_told_the_reason_is(workload: str) -> None:
    (trap,) = of(workload)
    assert trap.text.startswith(WARNINGS["unknown"].format(why=UNKNOWN[workload]))
    assert trap.is_warning


def test_the_trial_leaves_the_random_numbers_alone() -> None:
    workload = build_workload(dataclasses.replace(CONFIG, workload="example_mixing:dropout_by_function"))
    batches = [next(iter(workload.batches))]
    state = torch.get_rng_state(), random.getstate()
    assert mixing_traps(workload, batches, CONFIG) == []
    assert torch.equal(torch.get_rng_state(), state[0])
    assert random.getstate() == state[1]
