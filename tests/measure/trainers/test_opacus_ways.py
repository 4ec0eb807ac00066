"""Opacus's other ways: steps bitwise those of `make_private`, and what they cannot train is told."""

import dataclasses
import itertools
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from documented_loop import keep_ours, keep_theirs, moved
from example_trainers import CONFIG, held, make, weights
from trap_cases import configured, said
from tutorial_loops import make_loop

from dpprof.errors import ConfigError, WorkloadError
from dpprof.measure.experiment import ExperimentTraining
from dpprof.measure.gradient_check import gradient_error
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.watched_step import watch_step
from dpprof.measure.workloads.workload import build_workload
from dpprof.vocabulary.opacus_ways import OPACUS_WAYS

WAYS = [info.name for info in OPACUS_WAYS]
FUNCTORCH, EW, PER_LAYER, ADAPTIVE, UNWRAPPED = WAYS


@pytest.mark.parametrize("trainer", WAYS)
def test_step_is_bitwise_that_of_make_private(trainer: str) -> None:
    ours, batches = make(trainer, max_grad_norm=0.3)
    config = dataclasses.replace(CONFIG, trainer=trainer, max_grad_norm=0.3)
    theirs = build_workload(config)
    loop = make_loop(config, theirs)
    for step, batch in enumerate(itertools.islice(batches, 3)):
        torch.manual_seed(step)
        ours.profile_step(batch)
        torch.manual_seed(step)
        loop([batch], nullcontext)
        for one, other in zip(weights(ours), theirs.model.parameters(), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("trainer", WAYS)
def test_memory_and_traffic_are_those_of_make_private(trainer: str) -> None:
    config = dataclasses.replace(CONFIG, trainer=trainer)
    with fake_tensors(load_trainer(trainer)):
        account, traffic = keep_theirs(config)
    with fake_tensors(load_trainer(trainer)):
        ours = keep_ours(config)
    assert (ours.account.peak, moved(ours.traffic)) == (account.peak, moved(traffic))


def test_expanded_weights_compute_no_other_gradient() -> None:
    made, batches = make(EW)
    made.compute_losses(next(batches)).mean().backward()
    assert "gradients" not in made.held_tensors()
    assert {len(samples) for samples in held(made)["per_sample_gradients"]} == {3}


def test_the_clipping_norm_follows_the_median() -> None:
    """From far above all norms it falls, from far below it rises."""
    for start, moves_to in ((1e3, 0), (1e-3, 2)):
        made, batches = make(ADAPTIVE, noise_multiplier=1e-3, max_grad_norm=start)
        norms = [start]
        for batch in itertools.islice(batches, 3):
            made.profile_step(batch)
            norms.append(float(made.optimizer.max_grad_norm))
        factor = norms[-1] / norms[0]
        assert (factor < 0.95, 0, factor > 1.05)[moves_to], norms


LIMITS = [(info.name, limit) for info in OPACUS_WAYS for limit in info.limits]
OTHERS = {"precision": "bf16", "accumulation_steps": 2}


@pytest.mark.parametrize(("trainer", "limit"), LIMITS, ids=str)
def test_a_limit_is_refused_before_anything_runs(trainer: str, limit: Any) -> None:
    given: dict[str, Any] = {limit.setting: OTHERS.get(limit.setting, True)}
    with pytest.raises(ConfigError) as refused:
        dataclasses.replace(CONFIG, trainer=trainer, **given)
    assert str(refused.value).startswith(f"{limit.setting}: got '")
    assert str(refused.value).endswith(limit.why)


@pytest.mark.parametrize(("trainer", "limit"), LIMITS, ids=str)
def test_a_limit_is_really_one(trainer: str, limit: Any) -> None:
    """Without the refusal a step fails; where batches are accumulated, the count is of the last one alone."""
    if limit.setting == "accumulation_steps":
        made, batches = make(trainer, noise_multiplier=0.0)
        made.accumulation_steps = 2
        made.profile_step(next(batches), next(batches))
        assert made.optimizer.sample_size == 3
        return
    changes: dict[str, Any] = {"activation_checkpointing": True} if "checkpointing" in limit.setting else {}
    made, batches = make("DPSGDTrainer", **changes)
    batch = next(batches)
    made = load_trainer(trainer)(
        build_workload(dataclasses.replace(CONFIG, **changes)).model,
        torch.optim.SGD,
        {"lr": 0.1},
        "cpu",
        loss=made.loss,
        batch_size=3,
        precision="bf16" if limit.setting == "precision" else "fp32",
        poisson_sampling=True,
    )
    with pytest.raises((RuntimeError, ValueError)):
        made.profile_step(tuple(t[:0] for t in batch) if limit.setting == "poisson_sampling" else batch)


def train(workload: str, trainer: str, *, on_fakes: bool = False) -> None:
    config = configured(workload, trainer)
    with fake_tensors(load_trainer(trainer)) if on_fakes else nullcontext():
        ExperimentTraining(config, build_workload(config)).run(2, Observer())


FIRST = "body.layers.0"
TRAPS = [
    (EW, "positions_t", said("ids", module=FIRST, length=4, batch_size=3)),
    (EW, "positions_1t", said("ids", module=FIRST, length=1, batch_size=3)),
    (EW, "flattened", said("inputs", module=FIRST, length=12, batch_size=3)),
    (EW, "scaled", said("ew_function", module="body", function="mul")),
    (EW, "no_sampler", said("ew_function", module=FIRST, function="matmul")),
    (EW, "attention", said("ew_function", module=FIRST, function="multi_head_attention_forward")),
    (EW, "rms_norm", said("ew_function", module="body", function="rms_norm")),
    (EW, "checkpointed", said("ew_recomputed")),
    (EW, "checkpointed_reentrant", said("ew_recomputed")),
    (EW, "unused", said("unused", parameters=f"{FIRST[:-1]}1.weight, {FIRST[:-1]}1.bias")),
    (FUNCTORCH, "bag", said("bag_under_functorch", module="bag")),
    (FUNCTORCH, "bag_with_offsets", said("bag_under_functorch", module="bag")),
    (FUNCTORCH, "dropout_under_functorch", said("random", module="body", parameters="scale")),
    (PER_LAYER, "positions_t", said("ids", module=FIRST, length=4, batch_size=3)),
    (PER_LAYER, "flattened", said("inputs", module=FIRST, length=12, batch_size=3)),
    (ADAPTIVE, "norm_without_bias", said("norm_bias", module="body")),
    (UNWRAPPED, "keyword", said("keywords", module=FIRST)),
]


@pytest.mark.parametrize("on_fakes", [False, True], ids=["real", "fake"])
@pytest.mark.parametrize(("trainer", "workload", "sentence"), TRAPS)
def test_a_trap_is_named(trainer: str, workload: str, sentence: str, on_fakes: bool) -> None:
    with pytest.raises(WorkloadError) as failed:
        train(workload, trainer, on_fakes=on_fakes)
    assert str(failed.value) == sentence


@pytest.mark.parametrize(("trainer", "workload", "sentence"), [t for t in TRAPS if t[0] != EW])
def test_a_trap_of_the_hooks_is_foreseen(trainer: str, workload: str, sentence: str) -> None:
    config = configured(workload, trainer)
    built = build_workload(config)
    step = watch_step(built, next(iter(built.batches)), config)
    found = [trap.text for trap in load_trainer(trainer).foresee(step) if not trap.is_warning]
    assert found == [sentence]


def test_only_a_real_group_norm_wants_contiguous_inputs() -> None:
    with pytest.raises(WorkloadError) as failed:
        train("group_norm", EW)
    assert str(failed.value) == said("ew_group_norm", module=FIRST)
    train("group_norm", EW, on_fakes=True)


def test_an_operator_in_place_is_named_with_its_line() -> None:
    with pytest.raises(WorkloadError, match=r"^body changes in place \(example_trapped\.py, line \d+\) what"):
        train("residual", EW)


def test_inputs_by_name_are_told() -> None:
    config = dataclasses.replace(CONFIG, trainer=EW, workload="example_workloads:two_tower")
    with pytest.raises(WorkloadError) as failed:
        ExperimentTraining(config, build_workload(config)).run(1, Observer())
    assert str(failed.value) == said("ew_keywords")


@pytest.mark.parametrize(
    ("trainer", "workload"),
    [
        *((EW, name) for name in ("lstm", "keyword", "by_function", "norm_without_bias", "tied")),
        *((FUNCTORCH, name) for name in ("norm_without_bias", "tied", "dp_lstm", "scaled")),
    ],
)
def test_what_flat_cannot_train_or_trains_otherwise_has_the_right_gradient(
    trainer: str, workload: str
) -> None:
    assert gradient_error(configured(workload, trainer), "float64") < 1e-12


def test_memory_is_that_of_flat_clipping_and_no_more() -> None:
    """What is held after a step: the same, to the byte."""

    def sizes(trainer: str) -> dict[str, int]:
        made, batches = make(trainer)
        made.profile_step(next(batches))
        return {category: sum(t.nbytes for t in tensors) for category, tensors in held(made).items()}

    assert all(sizes(trainer) == sizes("DPSGDTrainer") for trainer in WAYS)
