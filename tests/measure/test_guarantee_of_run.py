"""The guarantee of a run: as the accountants say, and none where they would not be asked the truth."""

import math
from typing import Any

import pytest
from example_results import result
from torch import nn

from dpprof.measure.guarantee import guarantee
from dpprof.measure.trainers.opacus.silent_traps import mixed_samples
from dpprof.privacy.accounting import epsilon_of
from dpprof.privacy.guarantee import PrivateSteps
from dpprof.record.privacy import PrivacyResult
from dpprof.record.record import GradientCheck, Record
from dpprof.record.verify import VerifyCheck, VerifyResult
from dpprof.vocabulary.trainers import TRAINERS, trainer_info

DATA: dict[str, Any] = {"dataset_size": 10_000, "epochs": 2.0, "batch_size": 100}
FIXED = "the measured batches have a fixed size: epsilon is what Poisson sampling spends at this rate"


def asked(trainer: str = "bk", changes: dict[str, Any] | None = None, **settings: object) -> PrivacyResult:
    """The guarantee of a run with changes in its record."""
    run = result(trainer, step_s=0.1, **{**DATA, **settings})
    assert run.record is not None
    for name, value in (changes or {}).items():
        setattr(run.record, name, value)
    found = guarantee(run.config, run.record)
    assert found is not None
    return found


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
    assert (shared.sample_rate, shared.noise_multiplier) == (0.01, 1.0)


def test_a_run_without_a_private_trainer_or_a_data_set_has_none() -> None:
    for run in (result("standard", step_s=0.1, **DATA), result("bk", step_s=0.1)):
        assert run.record is not None
        assert guarantee(run.config, run.record) is None
    estimate = result("bk", passes="estimate", device="cpu", **DATA)
    assert guarantee(estimate.config, Record({}, {})) is None


def test_batches_of_a_fixed_size_are_named() -> None:
    assert asked().weakened[0].startswith(FIXED)
    assert asked("functorch").weakened[1:] == [
        "dpprof does not measure functorch on Poisson-sampled batches: vmap takes no empty batch; use flat"
    ]


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


@pytest.mark.parametrize("clipping", ["layer_wise", "automatic"])
def test_another_way_of_clipping_moves_the_sum_no_further(clipping: str) -> None:
    assert asked(clipping=clipping) == asked()


def test_a_trainer_that_is_not_listed_here_has_none() -> None:
    assert trainer_info("Elsewhere").unaccounted.startswith("it does not declare")


def verified(outcome: str) -> VerifyResult:
    return VerifyResult([VerifyCheck("noise", outcome, "too little noise")])


def broken_by(why: str, **changes: object) -> Any:
    return pytest.param(changes, why, id=next(iter(changes)))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        broken_by("1 of 200 losses are NaN or infinite, whose gradients no clip", nonfinite_losses=1),
        broken_by("the gradient check failed (wrong)", gradient_check=GradientCheck(fault="wrong")),
        broken_by("verify failed (noise: too little noise)", verify=verified("fail")),
        broken_by("norm: nn.BatchNorm1d mixes the samples", warnings=["a", "norm: nn.BatchNorm1d mixes the "
        "samples of a batch, so that clipping does not bound what one sample changes: use nn.GroupNorm"]),
    ],
)  # fmt: skip
def test_what_is_known_to_break_it_leaves_none(changes: dict[str, Any], why: str) -> None:
    found = asked(changes=changes)
    assert found.epsilon is None
    assert found.why_none.startswith(why)
    assert found.notes == [f"there is no epsilon: {found.why_none}"]
    fine = {"gradient_check": GradientCheck(0.0, 0.0), "verify": verified("pass"), "nonfinite_losses": 0}
    assert asked(changes=fine).epsilon == asked().epsilon


def test_the_warning_of_mixed_samples_is_the_trainers() -> None:
    (warning,) = mixed_samples(nn.Sequential(nn.BatchNorm1d(2, affine=False)))
    assert asked("flat", {"warnings": [warning]}).why_none == warning


@pytest.mark.parametrize(("noise", "why"), [(0.0, "noise_multiplier is 0"), (1e-200, "RDP failed at noise")])
def test_noise_that_no_accountant_can_take(noise: float, why: str) -> None:
    found = asked(noise_multiplier=noise)
    assert found.epsilon is None
    assert found.why_none.startswith(why)


def test_another_accountant_is_named() -> None:
    found = asked(noise_multiplier=0.1)
    assert found.epsilon is not None
    assert math.isfinite(found.epsilon)
    assert found.accountant == "rdp"
    assert found.weakened[-1].endswith("RDP answers in its place: a looser bound")
