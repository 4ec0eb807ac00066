"""Training on logical batches of any size, in physical batches: as the naive loop has it."""

import copy
from typing import Any

import pytest
import torch
from example_layers import MODELS, OWN, batch_of, loss
from torch import Tensor

from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer
from dpprof.measure.trainers.reference import clipped_mean, naive_per_sample_gradients, relative_error
from dpprof.vocabulary.clipping import CLIPPINGS, PerSampleOptions

EXPECTED = 8


def trainer_on(cls: type[PerSampleTrainer], clipping: str = "flat", **changes: Any) -> PerSampleTrainer:
    settings = {
        "poisson_sampling": True,
        "noise_multiplier": 0.0,
        "max_grad_norm": 0.1,
        "batch_size": EXPECTED,
    }
    torch.manual_seed(0)
    return cls(
        MODELS["tied"]().double(),
        torch.optim.SGD,
        {"lr": 1.0},
        "cpu",
        loss=loss,
        options=PerSampleOptions(clipping=clipping),
        **(settings | changes),
    )


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("cls", OWN)
def test_any_number_of_physical_batches_sums_over_the_expected_size(
    cls: type[PerSampleTrainer], clipping: str
) -> None:
    trainer = trainer_on(cls, clipping)
    reference = copy.deepcopy(MODELS["tied"]().double())
    reference.load_state_dict(trainer.model.state_dict())
    sizes = [3, 2, 1]
    batches = [batch_of("tied", size) for size in sizes]
    per_sample: list[list[Tensor]] = []
    for size, batch in zip(sizes, batches, strict=True):
        per_sample += naive_per_sample_gradients(reference, loss, batch, size)

    def rule(norms: Tensor, max_grad_norm: float) -> Tensor:
        return cls.clip_factors(norms, max_grad_norm, PerSampleOptions(clipping=clipping))

    expected = [sum(sizes) / EXPECTED * g for g in clipped_mean(per_sample, 0.1, rule)]
    before = [p.detach().clone() for p in trainer.parameters]
    trainer.train_on(batches)
    moved = [a - b.detach() for a, b in zip(before, trainer.parameters, strict=True)]
    assert relative_error(moved, expected) < 1e-10


@pytest.mark.parametrize("cls", OWN)
def test_a_batch_without_samples_moves_the_weights_by_noise_alone(cls: type[PerSampleTrainer]) -> None:
    trainer = trainer_on(cls, noise_multiplier=3.0)
    before = [p.detach().clone() for p in trainer.parameters]
    trainer.train_on([batch_of("tied", 4)])
    after = [p.detach().clone() for p in trainer.parameters]
    trainer.train_on([])
    noise = torch.cat([(a - b.detach()).flatten() for a, b in zip(after, trainer.parameters, strict=True)])
    assert all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert float(noise.std()) == pytest.approx(3.0 * 0.1 / EXPECTED, rel=0.3)


@pytest.mark.parametrize("changes", [{"poisson_sampling": False}, {"accumulation_steps": 2}])
def test_a_trainer_that_is_made_for_fixed_batches_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="train_on needs a trainer with poisson_sampling=True"):
        trainer_on(OWN[0], **changes).train_on([])
