"""Steps of trainers of dpprof's own: any number of batches, noise in place, what they keep, draw, round."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from example_layers import (
    BATCH,
    MODELS,
    OWN,
    WIDTH,
    Applied,
    Around,
    Scaled,
    batch_of,
    gradients,
    loss,
    per_sample_gradients,
    trainer_of,
)
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.trainers.per_sample.book_keeping import DPBookKeepingTrainer
from dpprof.measure.trainers.per_sample.mixed_ghost import DPMixedGhostTrainer
from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer, add_noise
from dpprof.measure.trainers.per_sample.uses import scaled, squares_of
from dpprof.measure.trainers.reference import clipped_mean, copied, global_norm, relative_error
from dpprof.vocabulary.clipping import CLIPPINGS, PerSampleOptions

OPTIONS = PerSampleOptions()


@pytest.mark.parametrize("cls", OWN)
def test_under_autocast_a_module_without_a_rule_computes_as_in_forward(cls: type[PerSampleTrainer]) -> None:
    attention = nn.MultiheadAttention(6, 2, batch_first=True)
    model = Around(nn.Sequential(nn.Linear(6, 6), Applied(attention, lambda layer, x: layer(x, x, x)[0])))
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

        def forward(self, ids: Tensor) -> Any:
            def inner(x: Tensor) -> Tensor:
                return F.dropout(self.linear(x), 0.9)

            kept = checkpoint(inner, self.embedding(ids), use_reentrant=reentrant, preserve_rng_state=False)
            return self.head(kept)

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
    for shape in ((1, 4096, 4096), (1, 4_000_000, 2), (1, 1, 2048, 2048)):
        t = torch.randn(shape)
        exact = t.double().square().sum()
        assert float(squares_of(t)[0]) == pytest.approx(float(exact), rel=2e-6)


def test_factors_are_rounded_once() -> None:
    t, factors = torch.full((1, 4), 1.5, dtype=torch.bfloat16), torch.tensor([1.003])
    assert torch.equal(scaled(t, factors), (t.float() * 1.003).bfloat16())


def test_an_explicit_norm_unfolds_a_convolutions_input_once() -> None:
    trainer = trainer_of(DPMixedGhostTrainer, MODELS["signals"](), PerSampleOptions("explicit"))
    with Ledger("cpu") as ledger, ledger.counting():
        trainer.profile_step(batch_of("signals"))
        assert sum(row.calls for row in ledger.take_traffic() if row.name == "aten::im2col") == 2


EXPECTED = 8


def trainer_on(cls: type[PerSampleTrainer], clipping: str = "flat", **changes: Any) -> PerSampleTrainer:
    settings = {"poisson_sampling": True, "max_grad_norm": 0.1, "batch_size": EXPECTED} | changes
    torch.manual_seed(0)
    model, options = MODELS["tied"]().double(), PerSampleOptions(clipping=clipping)
    return trainer_of(cls, model, options, lr=1.0, **settings)


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("cls", OWN)
def test_any_number_of_physical_batches_sums_over_the_expected_size(
    cls: type[PerSampleTrainer], clipping: str
) -> None:
    trainer = trainer_on(cls, clipping)
    reference = copied(trainer.model)
    sizes = [3, 2, 1]
    batches = [batch_of("tied", size) for size in sizes]
    per_sample = [one for batch in batches for one in per_sample_gradients(reference, batch)]

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


SHAPES = [(300, 700), (5,), (1, 3, 3), (140_000,), (131_072,), (2,)]


def test_every_number_gets_its_own() -> None:
    gradients = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    add_noise(gradients, 2.5, "cpu")
    drawn = torch.cat([g.flatten() for g in gradients])
    assert drawn.unique().numel() == drawn.numel()
    assert drawn.std().item() == pytest.approx(2.5, rel=0.01)
    assert abs(drawn.mean().item()) < 5 * 2.5 / drawn.numel() ** 0.5


def test_noise_is_added_to_gradients_of_other_types_and_strides_too() -> None:
    gradients = [torch.full((400, 300), 7.0).T, torch.full((3,), -1.0, dtype=torch.float64)]
    before = [torch.get_rng_state(), *(gradient.clone() for gradient in gradients)]
    add_noise(gradients, 0.0, "cpu")
    after = [torch.get_rng_state(), *gradients]
    assert all(map(torch.equal, before, after)), "without noise nothing is drawn"
    add_noise(gradients, 0.1, "cpu")
    assert gradients[0].mean().item() == pytest.approx(7.0, abs=0.01)
    assert gradients[0].std().item() == pytest.approx(0.1, rel=0.02)
    assert (gradients[1] + 1).abs().max().item() < 1


@pytest.mark.parametrize(("device_type", "draws"), [("cpu", 4), ("cuda", 1), ("another", 4)])
def test_the_buffer_is_that_of_the_device_that_tensors_stand_for(device_type: str, draws: int) -> None:
    with Ledger("cpu") as ledger, ledger.counting():
        add_noise([torch.zeros(2**18), torch.zeros(2**18)], 1.0, device_type)
        (row,) = [row for row in ledger.take_traffic() if row.name == "aten::normal_"]
    assert row.calls == draws


def attention(*, need_weights: bool) -> Applied:
    """Of one input, with dropout."""
    inner = nn.MultiheadAttention(WIDTH, 2, dropout=0.5, batch_first=True)
    return Applied(inner, lambda layer, x: layer(x, x, x, need_weights=need_weights)[0])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("way", ["fused", "with weights", "recomputed"])
@pytest.mark.parametrize("cls", OWN)
def test_attention_with_dropout_trains_on_what_forward_drew(
    cls: type[PerSampleTrainer], way: str, precision: str
) -> None:
    torch.manual_seed(0)
    is_half = precision == "bf16"
    inner = attention(need_weights=way == "with weights")
    if way == "recomputed":
        inner = Applied(inner, partial(checkpoint, use_reentrant=False))
    model, (inputs, targets) = Around(inner), batch_of("reused")
    model.to(torch.float32 if is_half else torch.float64)
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
        losses = loss(model(inputs), targets)
    each = [list(torch.autograd.grad(one, list(model.parameters()), retain_graph=True)) for one in losses]
    limit = 0.9 * sorted(float(global_norm(gradient)) for gradient in each)[BATCH // 2]
    trainer = trainer_of(cls, model, PerSampleOptions(), max_grad_norm=limit, precision=precision)
    torch.manual_seed(1)
    trainer.profile_step((inputs, targets))
    assert relative_error(gradients(trainer), clipped_mean(each, limit)) < (0.02 if is_half else 1e-10)
    drawn = torch.rand(9)
    torch.manual_seed(1)
    assert not torch.equal(torch.rand(9), drawn), "noise is drawn from where dropout was"
