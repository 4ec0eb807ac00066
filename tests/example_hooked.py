"""The MLP with a hook on the gradient of its first weight."""

from collections.abc import Callable
from typing import Any

import torch
from example_trapped import Factory
from example_workloads import mlp
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig

ON_GRADIENT, AFTER = "register_hook", "register_post_accumulate_grad_hook"


def hooked(method: str, hook: Callable[[Any], Any]) -> Factory:
    def workload(config: ExperimentConfig) -> tuple[Any, ...]:
        made = mlp(config)
        getattr(made[0][0].weight, method)(hook)
        return made

    return workload


def norm_of(gradient: Tensor) -> None:
    assert gradient.norm() >= 0


def norm_after(parameter: nn.Parameter) -> None:
    norm_of(parameter.grad)  # type: ignore[arg-type]


def half_in_place(gradient: Tensor) -> None:
    gradient.mul_(0.5)


def half_after(parameter: nn.Parameter) -> None:
    half_in_place(parameter.grad)  # type: ignore[arg-type]


def step_after(parameter: nn.Parameter) -> None:
    """As an optimizer within backward does."""
    with torch.no_grad():
        parameter.sub_(0.1 * parameter.grad)  # type: ignore[operator]
    parameter.grad = None


looking, looking_after = hooked(ON_GRADIENT, norm_of), hooked(AFTER, norm_after)
scaling = hooked(ON_GRADIENT, lambda gradient: gradient * 0.5)
scaling_in_place, scaling_after = hooked(ON_GRADIENT, half_in_place), hooked(AFTER, half_after)
stepping = hooked(AFTER, step_after)


def frozen(config: ExperimentConfig) -> tuple[Any, ...]:
    """A hook that never runs, as its parameter does not train."""
    made = scaling(config)
    made[0][0].weight.requires_grad_(False)
    return made
