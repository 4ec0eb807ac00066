"""Hooks that a model's parameters have on their gradients.

They get a gradient of the whole batch, in place of samples', and a trainer may have none to give them.
"""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from dpprof.errors import WorkloadError

ON_GRADIENT, AFTER = "register_hook", "register_post_accumulate_grad_hook"
_HOLDERS = {ON_GRADIENT: "_backward_hooks", AFTER: "_post_accumulate_grad_hooks"}


def gradient_hooks(model: nn.Module) -> Iterator[tuple[str, str, dict[int, Any]]]:
    """Yield the name of each trainable parameter that has hooks, the method that added them, and them."""
    for name, parameter in model.named_parameters():
        for method, holder in _HOLDERS.items():
            hooks = getattr(parameter, holder)
            if parameter.requires_grad and hooks:
                yield name, method, hooks


def refuse_changes_by_hooks(model: nn.Module, sentence: str) -> None:
    """Make every hook raise WorkloadError if it changes the gradient or the weights, with the sentence.

    The sentence has places for `parameter` and `method`.
    """
    for name, method, hooks in gradient_hooks(model):
        watched = _watched_on_gradient if method == ON_GRADIENT else _watched_after
        error = WorkloadError(sentence.format(parameter=name, method=method))
        for number, hook in hooks.items():
            hooks[number] = watched(hook, error)


def _watched_on_gradient(hook: Callable[[Tensor], Any], error: WorkloadError) -> Callable[[Tensor], None]:
    def watched(gradient: Tensor) -> None:
        version = gradient._version
        returned = hook(gradient)
        if gradient._version != version or not (returned is None or returned is gradient):
            raise error

    return watched


def _watched_after(hook: Callable[[Any], Any], error: WorkloadError) -> Callable[[nn.Parameter], Any]:
    def watched(parameter: nn.Parameter) -> Any:
        before = _state(parameter)
        returned = hook(parameter)
        if _state(parameter) != before:
            raise error
        return returned

    return watched


def _state(parameter: nn.Parameter) -> tuple[int, int, int]:
    gradient = parameter.grad
    return parameter._version, id(gradient), -1 if gradient is None else gradient._version
