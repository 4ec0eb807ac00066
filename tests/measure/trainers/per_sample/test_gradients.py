"""The clipped gradient of trainers of dpprof's own: every kind of layer, norm form and clipping mode."""

import itertools
from typing import Any

import pytest
import torch
from example_layers import MODELS, OWN, batch_of, error_of, gradients, per_sample_gradients, trainer_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpprof.measure.trainers.per_sample.book_keeping import DPBookKeepingTrainer
from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer
from dpprof.measure.trainers.reference import global_norm, relative_error
from dpprof.vocabulary.clipping import CLIPPINGS, NORM_FORMS, PerSampleOptions


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@pytest.mark.parametrize("name", MODELS)
def test_it_equals_the_naive_loop(name: str, dtype: torch.dtype, tolerance: float) -> None:
    model, (inputs, targets) = MODELS[name]().to(dtype), batch_of(name)
    batch = (inputs.to(dtype) if inputs.is_floating_point() else inputs, targets)
    per_sample = per_sample_gradients(model, batch)
    for cls, form, clipping in itertools.product(OWN, NORM_FORMS, CLIPPINGS):
        error = error_of(cls, model, batch, PerSampleOptions(form, clipping), per_sample)
        assert error < tolerance, (cls, form, clipping)


@settings(max_examples=25)
@given(
    samples=st.integers(1, 5),
    positions=st.integers(1, 9),
    sizes=st.lists(st.integers(1, 12), min_size=2, max_size=4),
    form=st.sampled_from(NORM_FORMS),
    cls=st.sampled_from(OWN),
)
def test_any_shape(
    samples: int, positions: int, sizes: list[int], form: str, cls: type[PerSampleTrainer]
) -> None:
    torch.manual_seed(1)
    layers: list[nn.Module] = [nn.Embedding(6, sizes[0])]
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(sizes[-1], 5)).double()
    assert error_of(cls, model, batch_of("reused", samples, positions), PerSampleOptions(form)) < 1e-10


@pytest.mark.parametrize("cls", OWN)
def test_a_long_sequence_goes_by_blocks(cls: type[PerSampleTrainer]) -> None:
    """More positions than a block of Gram matrices has, and a weight larger than these."""
    model = nn.Sequential(nn.Embedding(6, 3000), nn.Linear(3000, 5)).double()
    assert error_of(cls, model, batch_of("reused", 2, 1100), PerSampleOptions("blocked")) < 1e-10


@pytest.mark.parametrize("cls", OWN)
def test_a_huge_sample_is_clipped_and_one_that_is_not_finite_is_refused(cls: type[PerSampleTrainer]) -> None:
    model, (x, y) = MODELS["signals"](), batch_of("signals")
    quiet = trainer_of(cls, model, PerSampleOptions())
    quiet.profile_step((x, y))
    x[1] *= 1e9
    huge = trainer_of(cls, model, PerSampleOptions())
    huge.profile_step((x, y))
    gap = float(global_norm([a - b for a, b in zip(gradients(huge), gradients(quiet), strict=True)]))
    assert gap <= 2.001 / len(x), "one sample was exchanged"
    for wrong in (float("nan"), float("inf")):
        x[1, 0, 0] = wrong
        before = [p.detach().clone() for p in huge.parameters]
        with pytest.raises(ValueError, match="1 of 4 samples are NaN or too large"):
            huge.profile_step((x, y))
        assert all(p.grad is None for p in huge.parameters)
        assert all(torch.equal(p, q) for p, q in zip(huge.parameters, before, strict=True))


def test_a_part_that_the_loss_does_not_need_gets_noise_alone() -> None:
    class Unneeded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(11, 6), nn.Linear(6, 5)
            self.extra, self.never = nn.Linear(6, 3), nn.Linear(2, 2)

        def forward(self, ids: torch.Tensor) -> Any:
            h = self.embedding(ids)
            self.extra(h)
            return self.head(h)

    model, batch = Unneeded(), batch_of("reused")
    trainer = trainer_of(DPBookKeepingTrainer, model, PerSampleOptions(), max_grad_norm=1e9)
    trainer.profile_step(batch)
    mean = [torch.stack(of_one).mean(0) for of_one in zip(*per_sample_gradients(model, batch), strict=True)]
    found = gradients(trainer)
    assert len(found) == len(mean)
    assert relative_error(found, mean) < 1e-5
