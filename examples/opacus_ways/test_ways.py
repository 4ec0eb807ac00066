"""Opacus's other ways: steps equal `make_private`'s bitwise, and limits are reported.

tests/test_opacus_ways.py installs the package and runs this file.
"""

import dataclasses
import itertools
from contextlib import nullcontext
from typing import Any

import documented_loop
import pytest
import torch
from example_trainers import CONFIG, gradient_error, held, make, weights
from opacus_ways import WAYS
from opacus_ways.expanded_traps import OWN_SENTENCES
from trap_cases import configured, said
from tutorial_loops import Loop, average, private

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import WorkloadError
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.training import Training
from dpprof.measure.workloads.workload import Workload, build_workload

NAMES = [info.name for info in WAYS]
FUNCTORCH, EW, PER_LAYER, ADAPTIVE, UNWRAPPED = NAMES
CHOSEN_BY: dict[str, dict[str, Any]] = {
    FUNCTORCH: {"grad_sample_mode": "functorch"},
    EW: {"grad_sample_mode": "ew"},
    PER_LAYER: {"clipping": "per_layer"},
    ADAPTIVE: {
        "clipping": "adaptive",
        "target_unclipped_quantile": 0.5,
        "clipbound_learning_rate": 0.2,
        "max_clipbound": 1e8,
        "min_clipbound": 1e-8,
    },
    UNWRAPPED: {"wrap_model": False},
}


def make_loop(config: ExperimentConfig, workload: Workload) -> Loop:
    """Train with `make_private`'s objects."""
    model, way = workload.model.train(), dict(CHOSEN_BY[config.trainer])
    if config.trainer == PER_LAYER:
        number = len(list(model.parameters()))
        way["max_grad_norm"] = [config.max_grad_norm / number**0.5] * number
    if config.trainer == ADAPTIVE:
        way["unclipped_num_std"] = max(config.batch_size / 20, config.noise_multiplier)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=config.momentum)
    module, wrapped = private(config, model, optimizer, **way)
    return average(model if config.trainer == UNWRAPPED else module, wrapped, workload.loss)


@pytest.mark.parametrize("trainer", NAMES)
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


@pytest.mark.parametrize("trainer", NAMES)
def test_memory_and_traffic_are_those_of_make_private(trainer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documented_loop, "make_loop", make_loop)
    config = dataclasses.replace(CONFIG, trainer=trainer)
    with fake_tensors(load_trainer(trainer)):
        account, traffic = documented_loop.keep_theirs(config)
    with fake_tensors(load_trainer(trainer)):
        ours = documented_loop.keep_ours(config)
    moved = documented_loop.moved
    assert (ours.account.peak, moved(ours.result.traffic)) == (account.peak, moved(traffic))


def test_expanded_weights_compute_no_other_gradient() -> None:
    made, batches = make(EW)
    made.compute_losses(next(batches)).mean().backward()
    assert "gradients" not in made.held_tensors()
    assert {len(samples) for samples in held(made)["per_sample_gradients"]} == {3}


def test_the_clipping_norm_follows_the_median() -> None:
    """From far above all norms it falls, from far below it rises."""
    for start, falls in ((1e3, True), (1e-3, False)):
        made, batches = make(ADAPTIVE, noise_multiplier=1e-3, max_grad_norm=start)
        for batch in itertools.islice(batches, 3):
            made.profile_step(batch)
        factor = float(made.optimizer.max_grad_norm) / start
        assert factor < 0.95 if falls else factor > 1.05


LIMITS = [(info.name, limit) for info in WAYS for limit in info.limits]


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
    flat, batches = make("DPSGDTrainer", **changes)
    batch = next(batches)
    made = load_trainer(trainer)(
        build_workload(dataclasses.replace(CONFIG, **changes)).model,
        torch.optim.SGD,
        {"lr": 0.1},
        "cpu",
        loss=flat.loss,
        batch_size=3,
        precision="bf16" if limit.setting == "precision" else "fp32",
        poisson_sampling=True,
    )
    with pytest.raises((RuntimeError, ValueError)):
        made.profile_step(tuple(t[:0] for t in batch) if limit.setting == "poisson_sampling" else batch)


def train(workload: str, trainer: str, *, on_fakes: bool = False) -> None:
    config = configured(workload, trainer)
    with fake_tensors(load_trainer(trainer)) if on_fakes else nullcontext():
        Training(config).run(2, Observer())


def own(trap: str, **words: object) -> str:
    return OWN_SENTENCES[trap].format(**words)


FIRST = "body.layers.0"
BAG = "bag: Opacus does not take nn.EmbeddingBag under functorch"
TRAPS = [
    (EW, "positions_t", said("ids", module=FIRST, length=4, batch_size=3)),
    (EW, "flattened", said("inputs", module=FIRST, length=12, batch_size=3)),
    (EW, "scaled", own("function", module="body", function="mul")),
    (EW, "attention", own("function", module=FIRST, function="multi_head_attention_forward")),
    (EW, "residual", "body changes in place (example_trapped.py, line "),
    (EW, "checkpointed", own("recomputed")),
    (EW, "checkpointed_reentrant", own("recomputed")),
    (EW, "unused", said("unused", parameters=f"{FIRST[:-1]}1.weight, {FIRST[:-1]}1.bias")),
    (FUNCTORCH, "bag", BAG),
    (FUNCTORCH, "bag_with_offsets", BAG),
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
    assert str(failed.value).startswith(sentence)


def test_only_a_real_group_norm_wants_contiguous_inputs() -> None:
    with pytest.raises(WorkloadError) as failed:
        train("group_norm", EW)
    assert str(failed.value) == own("group_norm", module=FIRST)
    train("group_norm", EW, on_fakes=True)


def test_inputs_by_name_are_told() -> None:
    config = dataclasses.replace(CONFIG, trainer=EW, workload="example_workloads:two_tower")
    with pytest.raises(WorkloadError) as failed:
        Training(config).run(1, Observer())
    assert str(failed.value) == own("keywords")


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
