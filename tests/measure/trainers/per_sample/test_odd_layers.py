"""Modules that the rules must treat as they are, or refuse."""

import copy

import pytest
import torch
import torch.nn.functional as F
from example_layers import OWN, batch_of, error_of, gradients, trainer_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dpprof.measure.trainers.per_sample.arithmetic import scaled, squares_of
from dpprof.measure.trainers.per_sample.book_keeping import DPBookKeepingTrainer
from dpprof.measure.trainers.per_sample.mixed_ghost import DPMixedGhostTrainer
from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer
from dpprof.vocabulary.clipping import PerSampleOptions

OPTIONS = PerSampleOptions()


class Around(nn.Module):
    """A module between an embedding and a head."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.embedding, self.inner, self.head = nn.Embedding(11, 6), inner, nn.Linear(6, 5)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.inner(self.embedding(ids)))
        return out


class Attention(nn.MultiheadAttention):
    """Of one input."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        out: Tensor = super().forward(x, x, x, need_weights=False)[0]
        return out


class Scaled(nn.Module):
    """Without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Standardized(nn.Conv1d):
    """Weight standardisation: the class does its work elsewhere than in forward."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        out: Tensor = super()._conv_forward(input, weight - weight.mean(), bias)
        return out


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (nn.BatchNorm1d(7, affine=False), "inner normalises over the batch"),
        (nn.BatchNorm1d(7, track_running_stats=False), "inner normalises over the batch"),
        (nn.LSTM(6, 6, batch_first=True), "inner has no rule, and torch.func cannot run it"),
        (Attention(6, 2), "inner takes the batch as its second dimension: set batch_first=True"),
        (
            nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)),
            "inner has a parametrization",
        ),
    ],
)
@pytest.mark.parametrize("cls", OWN)
def test_what_has_no_right_gradient_is_refused(
    cls: type[PerSampleTrainer], inner: nn.Module, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        trainer_of(cls, Around(inner), OPTIONS)


@pytest.mark.parametrize("cls", OWN)
def test_hooks_of_a_module_without_a_rule_run_once(cls: type[PerSampleTrainer]) -> None:
    model = Around(Scaled()).double()
    model.inner.register_forward_hook(lambda module, args, out: out * 2)
    assert error_of(cls, model, batch_of("reused"), OPTIONS) < 1e-10


@pytest.mark.parametrize("cls", OWN)
def test_a_subclass_that_computes_something_else_has_no_rule(cls: type[PerSampleTrainer]) -> None:
    model = nn.Sequential(Standardized(4, 5, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten()).double()
    inputs, targets = batch_of("signals")
    assert error_of(cls, model, (inputs.double(), targets), OPTIONS) < 1e-10


@pytest.mark.parametrize("cls", OWN)
def test_an_output_can_be_changed_in_place(cls: type[PerSampleTrainer]) -> None:
    model = Around(nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True))).double()
    assert error_of(cls, model, batch_of("reused"), OPTIONS) < 1e-10


@pytest.mark.parametrize("cls", OWN)
def test_under_autocast_a_module_without_a_rule_computes_as_in_forward(cls: type[PerSampleTrainer]) -> None:
    torch.manual_seed(0)
    model = Around(nn.Sequential(nn.Linear(6, 6), Attention(6, 2, batch_first=True)))
    exact = trainer_of(cls, model, OPTIONS)
    rounded = trainer_of(cls, model, OPTIONS, precision="bf16")
    batch = batch_of("reused")
    exact.profile_step(batch)
    rounded.profile_step(batch)
    one, other = (torch.cat([g.flatten() for g in gradients(each)]) for each in (rounded, exact))
    assert 0 < float((one - other).norm() / other.norm()) < 0.03


@pytest.mark.parametrize("cls", OWN)
def test_a_copy_of_the_model_and_evaluation_compute_as_ever(cls: type[PerSampleTrainer]) -> None:
    model = Around(Scaled())
    trainer = trainer_of(cls, model, OPTIONS)
    trainer.profile_step(batch_of("reused"))
    ids = batch_of("reused", 3)[0]
    assert torch.equal(trainer.model(ids), model(ids))
    twin = copy.deepcopy(trainer.model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert not twin(ids).any()


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_a_checkpoint_draws_again_is_the_same_in_both_backwards(reentrant: bool) -> None:
    """Else the norm is that of one gradient, and the sum of another."""

    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.linear, self.head = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 5)

        def forward(self, ids: Tensor) -> Tensor:
            def inner(x: Tensor) -> Tensor:
                return F.dropout(self.linear(x), 0.9)

            kept = checkpoint(inner, self.embedding(ids), use_reentrant=reentrant, preserve_rng_state=False)
            out: Tensor = self.head(kept)
            return out

    torch.manual_seed(0)
    model = Dropped()
    for _ in range(10):
        trainer = trainer_of(DPMixedGhostTrainer, model, OPTIONS, batch_size=1, max_grad_norm=1e-3)
        trainer.profile_step(batch_of("reused", 1))
        norm = float(torch.cat([g.flatten() for g in gradients(trainer)]).norm())
        assert norm <= 1e-3 * 1.0001


def test_nothing_of_a_step_is_held_after_it() -> None:
    trainer = trainer_of(DPBookKeepingTrainer, Around(Scaled()), PerSampleOptions(clipping="layer_wise"))
    trainer.profile_step(batch_of("reused"))
    assert not trainer.book.entries
    assert not trainer._sums  # type: ignore[attr-defined]


def test_a_parameter_that_is_frozen_later_is_noticed() -> None:
    trainer = trainer_of(DPBookKeepingTrainer, Around(Scaled()), OPTIONS)
    trainer.model.inner.weight.requires_grad_(False)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="not those that the trainer was made with"):
        trainer.profile_step(batch_of("reused"))


def test_norms_of_millions_of_numbers_are_right_in_float32() -> None:
    torch.manual_seed(0)
    for shape in ((1, 4096, 4096), (1, 4_000_000, 2), (1, 1, 2048, 2048)):
        t = torch.randn(shape)
        exact = t.double().square().sum()
        assert float(squares_of(t)[0]) == pytest.approx(float(exact), rel=2e-6)


def test_factors_are_rounded_once() -> None:
    t, factors = torch.full((1, 4), 1.5, dtype=torch.bfloat16), torch.tensor([1.003])
    assert torch.equal(scaled(t, factors), (t.float() * 1.003).bfloat16())
