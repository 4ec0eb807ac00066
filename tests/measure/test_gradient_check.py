"""What the gradient check finds, with real trainers and models of every kind, and how that is judged."""

import copy
import dataclasses
from typing import Any

import pytest
import torch
from covering import product
from example_runs import known, put_in_place
from example_trainers import taking
from torch import nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.gradient_check import check_gradient, switch_dropout_off
from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer
from dpprof.measure.trainers.reference import global_norm
from dpprof.record.figures.verdicts import CANNOT_TELL, FAIL, PASS, Verdict, judge_gradient
from dpprof.record.record import GradientCheck
from dpprof.vocabulary.trainers import TRAINERS

CONFIG = ExperimentConfig(trainer="DPSGDTrainer", batch_size=4).resolve(cuda_available=False)


def verdict(workload: str, trainer: str = "DPSGDTrainer", **settings: Any) -> Verdict:
    return judge_gradient(checked(f"checked:{workload}", trainer, **settings))


def checked(workload: str, trainer: str, **settings: Any) -> GradientCheck:
    name = f"example_{workload}"
    return check_gradient(dataclasses.replace(CONFIG, trainer=trainer, workload=name, **settings))


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_model_with_dropout_passes_with_dropout_off(trainer: str) -> None:
    found = verdict("with_dropout", trainer)
    assert (found.word, found.reason.endswith("; checked with dropout off")) == (PASS, True)


WITH_DROPOUT = [nn.Dropout1d(0.5), nn.AlphaDropout(0.5), nn.MultiheadAttention(8, 2, dropout=0.5)]
WITH_DROPOUT += [nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)]
WITH_DROPOUT += [nn.LSTM(8, 8, num_layers=2, dropout=0.5)]


@pytest.mark.parametrize("model", WITH_DROPOUT, ids=lambda model: type(model).__name__)
def test_every_dropout_that_a_module_holds_is_switched_off(model: nn.Module) -> None:
    model = copy.deepcopy(model)
    inputs = [torch.ones(2, 7, 8)] * (3 if isinstance(model, nn.MultiheadAttention) else 1)

    def changes() -> bool:
        one, other = (model(*inputs) for _ in range(2))
        return not torch.equal(*((one[0], other[0]) if isinstance(one, tuple) else (one, other)))

    assert changes()
    assert switch_dropout_off(model)
    assert not changes()
    assert not switch_dropout_off(model)


REASONS = {
    "with_functional_dropout": "the losses of one batch change from one forward to the next",
    "with_state": "the losses of one batch change from one forward to the next",
    "with_noisy_gradients": "a sample's gradient changes from one backward to the next",
    "nan_losses": "4 of 4 losses are NaN or infinite in float64",
    "nan_gradients": "4 of 4 per-sample gradients are NaN or infinite in float64",
    "beyond_float32": "4 of 4 losses are NaN or infinite in float32",
    "flat_loss": "every sample's gradient is zero",
}


@pytest.mark.parametrize(("trainer", "workload"), product(["StandardTrainer", "DPSGDTrainer"], REASONS))
def test_where_there_is_no_one_gradient_the_check_cannot_tell(trainer: str, workload: str) -> None:
    found = verdict(workload, trainer)
    assert found.word == CANNOT_TELL
    assert found.reason.startswith(REASONS[workload])


def test_a_loss_that_depends_on_other_samples_is_a_fault_of_private_training() -> None:
    private, standard = verdict("mixing_samples"), verdict("mixing_samples", "StandardTrainer")
    assert private.word == FAIL
    assert private.reason.startswith("a sample's loss depends on the other samples of its batch")
    assert private.reason.endswith("training is not differentially private")
    assert standard.word == CANNOT_TELL


def test_a_model_partly_in_float32_is_judged_by_what_it_computes_in() -> None:
    found = checked("checked:partly_float32", "DPGhostClippingTrainer")
    assert known(found.relative_error_float64) > 1e-9, "what would be a failure of a model in float64"
    assert found.computed_in == "float32"
    assert judge_gradient(found).word == PASS


class Unclipped(DPSGDTrainer):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more | {"max_grad_norm": 1e9})


class NanGradients(DPSGDTrainer):
    def _accumulate_clipped(self, losses: torch.Tensor) -> None:
        super()._accumulate_clipped(losses)
        for parameter in self.parameters:
            parameter.summed_grad *= torch.nan  # type: ignore[attr-defined]


@pytest.mark.parametrize("wrong", [Unclipped, NanGradients])
def test_a_wrong_trainer_fails(monkeypatch: pytest.MonkeyPatch, wrong: type[Any]) -> None:
    """What it is told: the first one is off, the second one has no numbers."""
    put_in_place(monkeypatch, "DPSGDTrainer", wrong)
    found = verdict("mlp")
    reason = "in float64, where 1e-09 is allowed" if wrong is Unclipped else "is NaN or infinite in float64"
    assert (found.word, reason in found.reason) == (FAIL, True), found


@pytest.mark.parametrize("trainer", taking("precision"))
def test_a_bf16_run_is_checked_as_it_trains(trainer: str) -> None:
    found = checked("workloads:mlp", trainer, precision="bf16")
    assert 1e-4 < known(found.relative_error_bf16) < 5e-2, "rounded to 2**-9"
    assert known(found.relative_error_float32) < 1e-5
    assert judge_gradient(found).word == PASS
    assert checked("workloads:mlp", trainer).relative_error_bf16 is None


def test_the_reference_adds_up_in_float64() -> None:
    """Four million equal squares: a sum of them in float32 drifts in its fourth digit."""
    gradient = [torch.full((1 << 22,), 0.1), torch.full((5,), 0.1)]
    exact = (0.1**2 * ((1 << 22) + 5)) ** 0.5
    assert float(global_norm(gradient)) == pytest.approx(exact, rel=1e-7)
