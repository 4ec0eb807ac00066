"""Every registered trainer does what the algorithm says, held against references."""

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.gradient_check import gradient_error
from dpprof.measure.observe import Observer
from dpprof.measure.trainers import TRAINER_CLASSES
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.build import build_trainer
from dpprof.measure.trainers.reference import clipped_mean, naive_per_sample_gradients, relative_error
from dpprof.measure.workloads.transformer import sequence_loss
from dpprof.measure.workloads.workload import build_workload
from dpprof.vocabulary.loops import LOOPS
from dpprof.vocabulary.phases import PHASES
from dpprof.vocabulary.trainers import TRAINERS

PRIVATE = [name for name, cls in TRAINER_CLASSES.items() if cls.is_private]
CONFIG = ExperimentConfig(
    model_size="tiny", vocab_size=50, hidden_dim=16, num_layers=2, num_heads=2, batch_size=3, seq_len=8
).resolve(cuda_available=False)


def make(trainer: str, **changes: Any) -> tuple[TrainerBase, Any]:
    config = dataclasses.replace(CONFIG, trainer=trainer, **changes)
    workload = build_workload(config)
    return build_trainer(config, workload), iter(workload.batches)


def weights(trainer: TrainerBase) -> list[torch.Tensor]:
    return [p.detach().clone() for p in trainer.parameters]


def test_registry_holds_the_configured_names() -> None:
    assert list(TRAINER_CLASSES) == list(TRAINERS)
    assert [cls.__name__ for cls in TRAINER_CLASSES.values()] == list(TRAINERS)


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("attention", ["sdpa", "dp_mha"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradient_equals_the_naive_loop(trainer: str, attention: str, checkpointing: bool) -> None:
    config = dataclasses.replace(
        CONFIG, trainer=trainer, attention=attention, activation_checkpointing=checkpointing
    )
    assert gradient_error(config, "float64") < 1e-12


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
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


@pytest.mark.parametrize("trainer", TRAINERS)
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


@pytest.mark.parametrize("trainer", PRIVATE)
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
    mean = clipped_mean(per_sample, 0.3)
    assert relative_error(held(made)["gradients"], [g * num_samples / 3 for g in mean]) < 1e-12


def test_a_step_refuses_the_wrong_number_of_batches() -> None:
    trainer, batches = make("StandardTrainer", accumulation_steps=2)
    with pytest.raises(ValueError, match="takes 2 physical batches, got 1"):
        trainer.profile_step(next(batches))


def opacus_flat(model: nn.Module, inner: torch.optim.Optimizer, batch: Any, wrapped: list[Any]) -> None:
    """One step of flat clipping as a user of Opacus writes it."""
    if not wrapped:
        wrapped += [
            GradSampleModule(model),
            DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=0.3, expected_batch_size=3),
        ]
    module, optimizer = wrapped
    ids, labels = batch
    optimizer.zero_grad()
    logits = module(ids)
    losses = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    losses.view(labels.shape).mean(dim=1).mean().backward()
    optimizer.step()


def opacus_fast(
    model: nn.Module, inner: torch.optim.Optimizer, batch: Any, wrapped: list[Any], ghost: bool
) -> None:
    """One step of fast gradient or ghost clipping as a user of Opacus writes it."""
    if not wrapped:
        module = GradSampleModuleFastGradientClipping(model, max_grad_norm=0.3, use_ghost_clipping=ghost)
        optimizer = DPOptimizerFastGradientClipping(
            inner, noise_multiplier=1.0, max_grad_norm=0.3, expected_batch_size=3
        )
        wrapped += [module, optimizer, DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss())]
    module, optimizer, criterion = wrapped
    ids, labels = batch
    optimizer.zero_grad()
    criterion(module(ids).flatten(0, 1), labels.flatten(), shape=labels.shape).backward()
    optimizer.step()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("trainer", PRIVATE)
def test_step_is_bitwise_that_of_opacus(trainer: str, optimizer: str) -> None:
    """Steps taken apart into phases give exactly what Opacus's own `backward()` and `step()` give."""
    ours, batches = make(trainer, optimizer=optimizer, max_grad_norm=0.3)
    theirs = build_workload(CONFIG).model.train()
    cls: Any = torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW
    inner = cls(theirs.parameters(), lr=CONFIG.lr)
    wrapped: list[Any] = []
    for step, batch in enumerate(itertools.islice(batches, 3)):
        torch.manual_seed(step)
        ours.profile_step(batch)
        torch.manual_seed(step)
        if trainer == "DPSGDTrainer":
            opacus_flat(theirs, inner, batch, wrapped)
        else:
            opacus_fast(theirs, inner, batch, wrapped, ghost=trainer == "DPGhostClippingTrainer")
        for a, b in zip(weights(ours), theirs.parameters(), strict=True):
            assert torch.equal(a, b)


def held(trainer: TrainerBase) -> dict[str, list[Tensor]]:
    return {category: [t for _, t in named] for category, named in trainer.held_tensors().items()}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_bf16_stays_close_to_fp32(trainer: str) -> None:
    exact, batches = make(trainer, noise_multiplier=0.0)
    rounded, _ = make(trainer, noise_multiplier=0.0, precision="bf16")
    batch = next(batches)
    exact.profile_step(batch)
    rounded.profile_step(batch)
    error = relative_error(held(rounded)["gradients"], held(exact)["gradients"])
    assert 0 < error < 0.02


class Names(Observer):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def phase(self, name: str) -> Any:
        self.seen.append(name)
        return super().phase(name)


STEPS = {
    "StandardTrainer": ["zero_grad", "forward", "backward", "optimizer_step"],
    "DPSGDTrainer": ["zero_grad", "forward", "backward", "clip", "noise", "optimizer_step"],
}
TWO_BACKWARDS = ["backward_norms", "clip", "backward_weighted", "clip"]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_phases_of_a_step(trainer: str) -> None:
    made, batches = make(trainer)
    names = Names()
    made.run_profiling(itertools.islice(batches, 1), names)
    two = ["zero_grad", "forward", *TWO_BACKWARDS, "noise", "optimizer_step"]
    assert names.seen == STEPS.get(trainer, two)
    assert set(names.seen) <= set(PHASES)


HELD = {
    "StandardTrainer": {"gradients"},
    "DPSGDTrainer": {"gradients", "per_sample_gradients", "summed_gradients"},
    "DPGhostClippingTrainer": {"gradients", "gradient_norms", "summed_gradients"},
    "DPFastGradientClippingTrainer": {"gradients", "gradient_norms", "summed_gradients"},
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_held_tensors_by_arithmetic(trainer: str, loop: str) -> None:
    made, batches = make(trainer, optimizer="adamw", loop=loop)
    made.run_profiling(itertools.islice(batches, 2), Observer())
    found = held(made)
    size = {category: sum(t.nbytes for t in tensors) for category, tensors in found.items()}
    num_parameters = sum(p.numel() for p in made.parameters)
    assert set(found) == HELD[trainer] | {"parameters", "optimizer_state", "outputs"}
    # The logits are kept by the documented loop alone, the loss by both.
    losses = 1 if trainer in ("StandardTrainer", "DPSGDTrainer") else 3
    assert size["outputs"] == 4 * (losses + (3 * 8 * 50 if loop == "documented" else 0))
    assert size["parameters"] == 4 * num_parameters
    assert size["gradients"] == 4 * num_parameters
    assert size["optimizer_state"] == 2 * 4 * num_parameters + 4 * len(made.parameters)
    if "per_sample_gradients" in found:
        assert size["per_sample_gradients"] == 3 * 4 * num_parameters
    made.drop_gradients()
    left = {"DPGhostClippingTrainer": {"gradient_norms"}, "DPFastGradientClippingTrainer": {"gradient_norms"}}
    assert set(held(made)) == {"parameters", "optimizer_state"} | left.get(trainer, set())


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
    """With a vanishing gradient, `p.grad` is noise of deviation noise_multiplier * C / B."""
    made, batches = make(trainer, noise_multiplier=2.0, max_grad_norm=1e-3)
    made.profile_step(next(batches))
    noise = torch.cat([g.flatten() for g in held(made)["gradients"]])
    assert noise.std().item() == pytest.approx(2.0 * 1e-3 / 3, rel=0.05)
