"""What the gradient check finds, with real trainers and models of every kind, and how that is judged."""

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
from dpprof.vocabulary.trainers import TRAINERS

CONFIG = ExperimentConfig(trainer="DPSGDTrainer", batch_size=4).resolve(cuda_available=False)


def verdict(workload: str, trainer: str = "DPSGDTrainer", **settings: Any) -> Verdict:
    name = f"example_checked:{workload}"
    return judge_gradient(
        check_gradient(dataclasses.replace(CONFIG, trainer=trainer, workload=name, **settings))
    )


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_model_with_dropout_passes_with_dropout_off(trainer: str) -> None:
    found = verdict("with_dropout", trainer)
    assert (found.word, found.reason.endswith("; checked with dropout off")) == (PASS, True)


def test_every_dropout_that_a_module_holds_is_switched_off() -> None:
    inputs = torch.ones(2, 7, 8)
    models: list[tuple[nn.Module, tuple[Any, ...]]] = [
        (nn.Dropout1d(0.9), (inputs,)),
        (nn.AlphaDropout(0.9), (inputs,)),
        (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.9, batch_first=True), (inputs,)),
        (nn.MultiheadAttention(8, 2, dropout=0.9), (inputs, inputs, inputs)),
        (nn.LSTM(8, 8, num_layers=2, dropout=0.9), (inputs,)),
    ]

    def outputs(model: nn.Module, arguments: tuple[Any, ...]) -> torch.Tensor:
        made = model(*arguments)
        found: torch.Tensor = made[0] if isinstance(made, tuple) else made
        return found

    for model, arguments in models:
        assert not torch.equal(outputs(model, arguments), outputs(model, arguments)), model
        assert switch_dropout_off(model)
        assert torch.equal(outputs(model, arguments), outputs(model, arguments)), model
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
    found = check_gradient(
        dataclasses.replace(
            CONFIG, trainer="DPGhostClippingTrainer", workload="example_checked:partly_float32"
        )
    )
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


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (Unclipped, "in float64, where 1e-09 is allowed"),
        (NanGradients, "the trainer's gradient is NaN or infinite in float64"),
    ],
)
def test_a_wrong_trainer_fails(monkeypatch: pytest.MonkeyPatch, wrong: type[Any], reason: str) -> None:
    put_in_place(monkeypatch, "DPSGDTrainer", wrong)
    found = verdict("mlp")
    assert (found.word, reason in found.reason) == (FAIL, True), found


@pytest.mark.parametrize("trainer", taking("precision"))
def test_a_bf16_run_is_checked_as_it_trains(trainer: str) -> None:
    workload = dataclasses.replace(CONFIG, trainer=trainer, workload="example_workloads:mlp")
    found = check_gradient(dataclasses.replace(workload, precision="bf16"))
    assert 1e-4 < known(found.relative_error_bf16) < 5e-2, "rounded to 2**-9"
    assert known(found.relative_error_float32) < 1e-5
    assert judge_gradient(found).word == PASS
    assert check_gradient(workload).relative_error_bf16 is None


def test_the_reference_adds_up_in_float64() -> None:
    """Four million equal squares: a sum of them in float32 drifts in its fourth digit."""
    gradient = [torch.full((1 << 22,), 0.1), torch.full((5,), 0.1)]
    exact = (0.1**2 * ((1 << 22) + 5)) ** 0.5
    assert float(global_norm(gradient)) == pytest.approx(exact, rel=1e-7)
