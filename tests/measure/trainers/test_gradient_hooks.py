"""Hooks of parameters: trainers call them as torch does, or refuse them in a sentence."""

import dataclasses

import pytest
import torch
from covering import product
from example_hooked import AFTER, ON_GRADIENT
from trap_cases import CONFIG, PRIVATE, said

from dpprof.errors import WorkloadError
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.training import Training
from dpprof.vocabulary.trainers import STANDARD

OWN = ("DPBookKeepingTrainer", "DPMixedGhostTrainer")
LOOKING = {"looking": ON_GRADIENT, "looking_after": AFTER}
CHANGING = {
    "scaling": ON_GRADIENT,
    "scaling_in_place": ON_GRADIENT,
    "scaling_after": AFTER,
    "stepping": AFTER,
}


def trained(workload: str, trainer: str, num_steps: int = 2) -> Training:
    config = dataclasses.replace(CONFIG, workload=f"example_hooked:{workload}", trainer=trainer)
    training = Training(config)
    training.run(num_steps, Observer())
    return training


@pytest.mark.parametrize(("workload", "trainer"), product(CHANGING, PRIVATE))
def test_opacus_refuses_hooks_that_change_something(workload: str, trainer: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        trained(workload, trainer)
    assert str(refused.value) == said("gradient_hook", parameter="0.weight", method=CHANGING[workload])


@pytest.mark.parametrize(("workload", "trainer"), product(LOOKING, PRIVATE))
def test_opacus_calls_hooks_that_only_look_and_warns(workload: str, trainer: str) -> None:
    (warning,) = trained(workload, trainer).trainer.warnings()
    assert warning.startswith(f"0.weight: Opacus calls the hooks ({LOOKING[workload]}) ")


@pytest.mark.parametrize(("workload", "trainer"), product(LOOKING | CHANGING, OWN))
def test_trainers_of_dpprof_refuse_all_hooks(workload: str, trainer: str) -> None:
    method = (LOOKING | CHANGING)[workload]
    with pytest.raises(WorkloadError, match=rf"^0.weight has a hook \({method}\), and before"):
        trained(workload, trainer)


@pytest.mark.parametrize("workload", LOOKING | CHANGING)
def test_standard_training_calls_every_hook(workload: str) -> None:
    assert trained(workload, STANDARD).trainer.warnings() == []


def test_standard_training_uses_what_a_hook_returns() -> None:
    of_looking, of_scaling = (
        trained(workload, STANDARD, num_steps=1).model.get_parameter("0.weight").grad
        for workload in ("looking", "scaling")
    )
    assert of_looking is not None
    assert of_scaling is not None
    assert torch.equal(of_scaling, 0.5 * of_looking)


@pytest.mark.parametrize("trainer", [*PRIVATE, *OWN])
def test_a_hook_of_a_frozen_parameter_is_no_hindrance(trainer: str) -> None:
    assert trained("frozen", trainer).trainer.warnings() == []
