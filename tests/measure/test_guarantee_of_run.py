"""The guarantee of a run: as the accountants say, and none where they would not be asked the truth."""

import math
from functools import cache
from typing import Any

import pytest
from example_results import result
from example_runs import known
from torch import nn

from dpprof.measure.guarantee import guarantee
from dpprof.measure.trainers.opacus.foreseen import unbounded
from dpprof.privacy.accounting import epsilon_of
from dpprof.privacy.guarantee import PrivateSteps
from dpprof.record.record import GradientCheck, PrivacyResult, Record, VerifyCheck, VerifyResult
from dpprof.vocabulary.trainers import TRAINERS, trainer_info

DATA: dict[str, Any] = {"dataset_size": 10_000, "epochs": 2.0, "batch_size": 100}
ANSWERS = cache(epsilon_of)
FIXED = "the measured batches have a fixed size: epsilon is what Poisson sampling spends at this rate"


@pytest.fixture(autouse=True)
def _answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpprof.measure.guarantee.epsilon_of", ANSWERS)


def asked(trainer: str = "bk", changes: dict[str, Any] | None = None, **settings: object) -> PrivacyResult:
    """The guarantee of a run with changes in its record."""
    run = result(trainer, step_s=0.1, **{**DATA, **settings})
    record = known(run.record)
    for name, value in (changes or {}).items():
        setattr(record, name, value)
    return known(guarantee(run.config, record))


def test_it_is_what_the_accountant_says_of_these_steps() -> None:
    found = asked(noise_multiplier=0.8, poisson_sampling=True)
    steps = PrivateSteps(sample_rate=0.01, steps=200, delta=1e-5)
    told = epsilon_of(0.8, steps)
    assert found == PrivacyResult(0.8, 0.01, 200, 1e-5, told.epsilon, told.accountant, "", [])
    assert (told.accountant, told.note) == ("prv", "")
    own = asked(noise_multiplier=0.8, poisson_sampling=True, epochs=1.0, steps=50, target_delta=1e-7)
    assert own.epsilon == epsilon_of(0.8, PrivateSteps(0.01, 50, 1e-7)).epsilon


def test_batches_of_all_ranks_are_drawn_and_noise_counts_once() -> None:
    shared = asked(batch_size=25, parallel="ddp", world_size=4)
    accumulated = asked(batch_size=25, accumulation_steps=4)
    assert shared == accumulated == asked()
    for clipping in ("layer_wise", "automatic"):
        assert asked(clipping=clipping) == shared, "another way of clipping moves the sum no further"
    assert (shared.sample_rate, shared.noise_multiplier) == (0.01, 1.0)


def test_a_run_without_a_private_trainer_or_a_data_set_has_none() -> None:
    for run in (result("standard", step_s=0.1, **DATA), result("bk", step_s=0.1)):
        assert guarantee(run.config, known(run.record)) is None
    estimate = result("bk", passes="estimate", device="cpu", **DATA)
    assert guarantee(estimate.config, Record({}, {})) is None


@pytest.mark.usefixtures("limited")
def test_batches_of_a_fixed_size_are_named() -> None:
    assert asked().weakened[0].startswith(FIXED)
    (limit,) = asked("limited").weakened[1:]
    assert limit.endswith("limited on Poisson-sampled batches: it takes no empty batch; use flat")


@pytest.mark.parametrize("trainer", [name for name, info in TRAINERS.items() if info.is_private])
def test_each_trainer_of_dpprofs_says_whether_accountants_know_its_steps(trainer: str) -> None:
    found = asked(trainer)
    unaccounted = trainer_info(trainer).unaccounted
    assert bool(unaccounted) == (trainer == "DPAdaptiveClippingTrainer")
    if unaccounted:
        assert (found.epsilon, found.weakened) == (None, [])
        assert found.why_none == f"adaptive: {unaccounted}"
    else:
        assert found.epsilon is not None
    assert trainer_info("Elsewhere").unaccounted.startswith("it does not declare")


LOOSE = nn.Sequential(nn.EmbeddingBag(3, 2, mode="max"), nn.BatchNorm1d(2, affine=False))


def verified(outcome: str) -> VerifyResult:
    return VerifyResult([VerifyCheck("noise", outcome, "too little noise")])


def broken_by(why: str, **changes: object) -> Any:
    return pytest.param(changes, why, id=next(iter(changes)))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        broken_by("1 of 200 losses are NaN or infinite", nonfinite_losses=1),
        broken_by("the gradient check failed (wrong)", gradient_check=GradientCheck(fault="wrong")),
        broken_by("verify failed (noise: too little noise)", verify=verified("fail")),
        broken_by("0: Opacus takes per-sample gradients", unbounded=unbounded(LOOSE)),
        broken_by("1: nn.BatchNorm1d mixes the samples", unbounded=unbounded(LOOSE)[1:]),
    ],
)  # fmt: skip
def test_what_is_known_to_break_it_leaves_none(changes: dict[str, Any], why: str) -> None:
    found = asked(changes=changes)
    assert found.epsilon is None
    assert found.why_none.startswith(why)
    assert found.notes == [f"there is no epsilon: {found.why_none}"]
    fine = {"gradient_check": GradientCheck(0.0, 0.0), "verify": verified("pass"), "nonfinite_losses": 0}
    assert asked(changes=fine).epsilon == asked().epsilon


@pytest.mark.parametrize(("noise", "why"), [(0.0, "noise_multiplier is 0"), (1e-200, "RDP failed at noise")])
def test_noise_that_no_accountant_can_take(noise: float, why: str) -> None:
    found = asked(noise_multiplier=noise)
    assert found.epsilon is None
    assert found.why_none.startswith(why)


def test_weak_privacy_is_told_first() -> None:
    weak = asked(noise_multiplier=0.2, target_delta=0.01).weakened
    assert weak[0].startswith("delta 0.01 is above 1 / 10,000")
    assert weak[1].startswith("epsilon ")
    assert weak[2].startswith(FIXED)


def test_another_accountant_is_named() -> None:
    found = asked(noise_multiplier=0.1)
    assert math.isfinite(known(found.epsilon))
    assert found.accountant == "rdp"
    assert found.weakened[-1].endswith("RDP answers in its place: a looser bound")
