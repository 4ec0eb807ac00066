"""Every listed trainer does what its algorithm and the table say, held against references.

Those of other packages too, where they are installed: `pytest -k NAME` with this file.
"""

import dataclasses
import itertools
import sys
from collections import Counter
from typing import Any

import pytest
import torch
from example_trainers import CONFIG, Phases, gradient_error, held, make, taking, weights

from dpprof.measure.observe import Observer
from dpprof.measure.passes.ledger import Ledger, LedgerObserver
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.build import clip_rule, import_trainers, load_trainer
from dpprof.measure.trainers.reference import clipped_mean, naive_per_sample_gradients, relative_error
from dpprof.measure.trainers.training import Training
from dpprof.measure.workloads.transformer import sequence_loss
from dpprof.measure.workloads.workload import build_workload
from dpprof.vocabulary.loops import LOOPS
from dpprof.vocabulary.trainer_info import TrainerInfo
from dpprof.vocabulary.trainers import BUILT_IN, STANDARD, TRAINERS

BROKEN = TrainerInfo("Broken", "broken", True, "#000000", (), (), "no_such_package.trainer:Broken")
PRIVATE = [name for name, info in TRAINERS.items() if info.is_private]


def test_the_table_names_each_trainers_class() -> None:
    assert [load_trainer(info.name).__name__ for info in BUILT_IN] == [info.name for info in BUILT_IN]
    assert all(issubclass(load_trainer(name), TrainerBase) for name in TRAINERS)


def test_every_listed_trainer_is_imported() -> None:
    said: list[str] = []
    import_trainers(STANDARD, said.append)
    assert {info.target.partition(":")[0] for info in TRAINERS.values()} <= sys.modules.keys()
    assert said == []


def test_a_trainer_that_cannot_be_imported_keeps_nobody_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TRAINERS, "Broken", BROKEN)
    said: list[str] = []
    import_trainers(STANDARD, said.append)
    (line,) = said
    assert line.startswith("Broken cannot be imported (ModuleNotFoundError: No")
    with pytest.raises(ModuleNotFoundError):
        import_trainers("Broken", said.append)


@pytest.mark.parametrize("attention", ["sdpa", "dp_mha"])
@pytest.mark.parametrize(
    ("trainer", "checkpointing"),
    [*((t, False) for t in TRAINERS), *((t, True) for t in taking("activation_checkpointing"))],
)
def test_gradient_equals_the_naive_loop(trainer: str, attention: str, checkpointing: bool) -> None:
    how: dict[str, Any] = {"attention": attention, "activation_checkpointing": checkpointing}
    assert gradient_error(dataclasses.replace(CONFIG, trainer=trainer, **how), "float64") < 1e-12


@pytest.mark.parametrize("trainer", taking("accumulation_steps"))
@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("adamw", marks=pytest.mark.exhaustive)])
def test_accumulated_batches_equal_one_large_batch(trainer: str, optimizer: str) -> None:
    """Noise off, in float64: three physical batches of 2 give the step of one batch of 6."""
    changes: dict[str, Any] = {"noise_multiplier": 0.0, "optimizer": optimizer, "max_grad_norm": 0.3}
    large, batches = make(trainer, batch_size=6, **changes)
    split, _ = make(trainer, batch_size=2, accumulation_steps=3, **changes)
    large.model.double()
    split.model.double()
    for _ in range(2):
        ids, labels = next(batches)
        large.profile_step((ids, labels))
        split.profile_step(*zip(ids.split(2), labels.split(2), strict=True))
        assert relative_error(weights(split), weights(large)) < 1e-12


@pytest.mark.parametrize("trainer", taking("poisson_sampling"))
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_an_empty_batch_is_a_step_with_noise_only(trainer: str, optimizer: str) -> None:
    """With noise off it changes nothing but what decays; with noise on, by noise of the usual deviation."""
    quiet, batches = make(trainer, noise_multiplier=0.0, poisson_sampling=True, optimizer=optimizer)
    empty = tuple(t[:0] for t in next(batches))
    for step in (empty, next(batches), empty):
        quiet.profile_step(step)
    assert all(not gradient.any() for gradient in held(quiet)["gradients"])
    if trainer in PRIVATE:
        noisy, _ = make(trainer, noise_multiplier=2.0, max_grad_norm=0.5, poisson_sampling=True)
        noisy.profile_step(empty)
        noise = torch.cat([g.flatten() for g in held(noisy)["gradients"]])
        assert noise.std().item() == pytest.approx(2.0 * 0.5 / 3, rel=0.05)


@pytest.mark.parametrize("trainer", taking("poisson_sampling", PRIVATE))
@pytest.mark.parametrize("num_samples", [1, 2, 5])
def test_a_sampled_batch_of_any_size_is_divided_by_the_expected_one(trainer: str, num_samples: int) -> None:
    """Noise off, in float64: the sum of clipped gradients over `batch_size`, not over those there are."""
    made, _ = make(trainer, noise_multiplier=0.0, max_grad_norm=0.3, poisson_sampling=True)
    _, batches = make(trainer, batch_size=num_samples)
    made.model.double()
    batch = next(batches)
    model = build_workload(CONFIG).model.double()
    per_sample = naive_per_sample_gradients(model, sequence_loss, batch, num_samples)
    made.profile_step(batch)
    mean = clipped_mean(per_sample, 0.3, clip_rule(dataclasses.replace(CONFIG, trainer=trainer)))
    assert relative_error(held(made)["gradients"], [g * num_samples / 3 for g in mean]) < 1e-12


def test_a_step_refuses_the_wrong_number_of_batches() -> None:
    trainer, batches = make("StandardTrainer", accumulation_steps=2)
    with pytest.raises(ValueError, match="takes 2 physical batches, got 1"):
        trainer.profile_step(next(batches))


@pytest.mark.parametrize("trainer", taking("precision"))
def test_bf16_stays_close_to_fp32(trainer: str) -> None:
    exact, batches = make(trainer, noise_multiplier=0.0)
    rounded, _ = make(trainer, noise_multiplier=0.0, precision="bf16")
    batch = next(batches)
    exact.profile_step(batch)
    rounded.profile_step(batch)
    error = relative_error(held(rounded)["gradients"], held(exact)["gradients"])
    assert 0 < error < 0.02


def _phases(trainer: str, num_batches: int = 1) -> list[str]:
    made, batches = make(trainer, accumulation_steps=num_batches)
    names = Phases()
    made.run_profiling(itertools.islice(batches, num_batches), names)
    return names.seen


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_step_has_the_phases_that_the_table_lists_as_often_as_it_says(trainer: str) -> None:
    seen = _phases(trainer)
    assert tuple(dict.fromkeys(seen)) == TRAINERS[trainer].phases
    if trainer in taking("accumulation_steps"):
        each_batch = TRAINERS[trainer].each_batch
        often = {name: 3 * n if name in each_batch else n for name, n in Counter(seen).items()}
        assert Counter(_phases(trainer, 3)) == often


@pytest.mark.parametrize("trainer", TRAINERS)
def test_memory_has_the_categories_that_the_table_lists(trainer: str) -> None:
    """All of them, over models with and without buffers, and none that it does not list."""
    seen: set[str] = set()
    for workload in (CONFIG.workload, "example_workloads:with_buffer"):
        config = dataclasses.replace(CONFIG, trainer=trainer, workload=workload, optimizer="adamw")
        with Ledger("cpu") as ledger:
            training = Training(config)
            observer = LedgerObserver(ledger, training)
            training.run(2, observer)
            seen.update(training.held_tensors())
        assert observer.highest is not None
        account = observer.highest.account
        timeline = account.timeline()
        seen.update(timeline.start, timeline.category, filter(None, timeline.moved_to))
        assert timeline.start.get("other", 0) == 0
        assert account.after_step.get("temporary", 0) == 0, "something made in passing is still there"
    assert seen - {"temporary", "other"} == set(TRAINERS[trainer].categories)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_held_tensors_by_arithmetic(trainer: str, loop: str) -> None:
    made, batches = make(trainer, optimizer="adamw", loop=loop)
    made.run_profiling(itertools.islice(batches, 2), Observer())
    size = {category: sum(t.nbytes for t in tensors) for category, tensors in held(made).items()}
    num_parameters = sum(p.numel() for p in made.parameters)
    logits = 4 * 3 * 8 * 50
    assert (size["outputs"] > logits) == (loop == "documented"), "that loop alone keeps them"
    assert size["parameters"] == 4 * num_parameters
    assert size["gradients"] == 4 * num_parameters
    assert size["optimizer_state"] == 2 * 4 * num_parameters + 4 * len(made.parameters)
    made.drop_gradients()
    left = {category: sum(t.nbytes for t in tensors) for category, tensors in held(made).items()}
    rest = sum(left.values()) - size["parameters"] - size["optimizer_state"]
    assert rest <= 4 * 3 * len(made.parameters), "no more than a number for each sample and parameter"


@pytest.mark.parametrize("trainer", TRAINERS)
def test_held_tensors_are_named_after_their_parameters(trainer: str) -> None:
    made, batches = make(trainer, optimizer="adamw")
    made.profile_step(next(batches))
    parameters = dict(made.model.named_parameters())
    for name, gradient in made.held_tensors()["gradients"]:
        assert gradient is parameters[name].grad
    state = {name for name, _ in made.held_tensors()["optimizer_state"]}
    assert "head.weight.exp_avg" in state
    assert len(state) == 3 * len(parameters)


@pytest.mark.parametrize("trainer", PRIVATE)
def test_noise_has_the_configured_deviation(trainer: str) -> None:
    """With a vanishing gradient, `p.grad` is noise of deviation noise_multiplier * C / B, or what is said."""
    made, batches = make(trainer, noise_multiplier=2.0, max_grad_norm=1e-3)
    deviation = made.noise_deviation(2.0, 1e-3, made.batch_size)
    assert 1 <= deviation / (2.0 * 1e-3) < 1.16
    made.profile_step(next(batches))
    noise = torch.cat([g.flatten() for g in held(made)["gradients"]])
    assert noise.std().item() == pytest.approx(deviation / 3, rel=0.02)
