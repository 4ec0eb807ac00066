"""Rules for layer types, installed in place of the modules' forwards.

A subclass with another forward has no rule. A module without one goes through `torch.func` with all its
submodules.
"""

from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.parametrize import is_parametrized

from dpprof.errors import WorkloadError
from dpprof.measure.trainers.gradient_hooks import gradient_hooks
from dpprof.measure.trainers.per_sample import functions
from dpprof.measure.trainers.per_sample.any_module import call_any
from dpprof.measure.trainers.per_sample.book import Book

Rule = type[torch.autograd.Function]


def install(model: nn.Module, book: Book) -> list[str]:
    """Put rules in place of the forwards of all modules with trainable parameters.

    Returns the paths of those without a rule. Raises WorkloadError for one that cannot be trained correctly.
    """
    for path, module in model.named_modules():
        _refuse(path or "the model", module)
    for name, method, _ in gradient_hooks(model):
        raise WorkloadError(
            f"{name} has a hook ({method}), and before samples are clipped there is no gradient to call it "
            "with: remove the hook, and change the loss or the forward instead"
        )
    without_rule = []
    for path, module in list(_owners(model)):
        rule = _rule(module)
        if rule is None:
            without_rule.append(path or "the model")
        module.forward = MethodType(_replaced(rule, path or "the model", book), module)
    return without_rule


def _replaced(rule: Rule | None, path: str, book: Book) -> Callable[..., Any]:
    """Return a method that applies the rule during a step, and else the module's own forward."""

    def forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not book.is_open:
            return type(module).forward(module, *args, **kwargs)
        if rule is None:
            return call_any(module, path, book, *args, **kwargs)
        (x,) = (*args, *kwargs.values())
        if not (isinstance(module, nn.Embedding) and _are_ids_of_samples(x, path, book)):
            _check_batch(path, x, book)
        reports = functions.Reports(book, module, path)
        x = functions.padded(module, x) if rule is functions.ConvFunction else x
        return rule.apply(x, module.weight, getattr(module, "bias", None), reports)

    return forward


def _are_ids_of_samples(ids: Tensor, path: str, book: Book) -> bool:
    """Tell if ids have one row, the same for all samples, or one dimension, one id for each sample."""
    return ids.shape[0] == 1 if ids.dim() > 1 else ids.dim() == 1 and book.begins_with_batch(ids, path)


def _refuse(path: str, module: nn.Module) -> None:
    if isinstance(module, _BatchNorm):
        raise WorkloadError(f"{path} normalises over the batch, and so mixes samples: use nn.GroupNorm")
    if not any(p.requires_grad for p in module.parameters()):
        return
    if isinstance(module, nn.RNNBase):
        raise WorkloadError(f"{path} has no rule, and torch.func cannot run it: train with flat")
    if getattr(module, "batch_first", True) is False:
        raise WorkloadError(f"{path} takes the batch as its second dimension: set batch_first=True")
    if "forward" in module.__dict__:
        raise WorkloadError(f"{path} has a forward of its own, set on the instance: make it a subclass's")
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        if module.sparse:
            raise WorkloadError(f"{path} has sparse gradients, and noise is dense: set sparse=False")
        if module.max_norm is not None:
            raise WorkloadError(f"{path} has max_norm, which changes rows without noise: leave it out")


def _owners(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that own trainable parameters, but none below one without a rule."""
    lists = [child for child in module.children() if isinstance(child, nn.ParameterList | nn.ParameterDict)]
    own = [p for each in (module, *lists) for p in each.parameters(recurse=is_parametrized(each))]
    if any(p.requires_grad for p in own):
        yield path, module
        if _rule(module) is None:
            return
    for name, child in module.named_children():
        yield from _owners(child, f"{path}.{name}" if path else name)


_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: functions.LinearFunction,
    nn.Embedding: functions.EmbeddingFunction,
    nn.LayerNorm: functions.LayerNormFunction,
    nn.RMSNorm: functions.RMSNormFunction,
    nn.GroupNorm: functions.GroupNormFunction,
    nn.Conv1d: functions.ConvFunction,
    nn.Conv2d: functions.ConvFunction,
}


def _rule(module: nn.Module) -> Rule | None:
    """Return a module's rule; None if weights are computed or complex, or gradients scaled by frequency."""
    rule, own = _rule_of(type(module)), module._parameters
    is_computed = rule and any(getattr(module, n, None) is not own.get(n) for n in ("weight", "bias"))
    is_complex = any(p is not None and p.is_complex() for p in own.values())  # rules take no conjugates
    is_scaled = isinstance(module, nn.Embedding) and module.scale_grad_by_freq
    return None if is_computed or is_complex or is_scaled else rule


def _rule_of(kind: Any) -> Rule | None:
    if functions.is_transposed(kind):
        return functions.LinearFunction
    for known, rule in _RULES.items():
        inner = "_conv_forward"  # where a convolution does its work
        if kind.forward is known.forward and getattr(kind, inner, None) is getattr(known, inner, None):
            return rule
    return None


def _check_batch(path: str, x: Tensor, book: Book) -> None:
    """Raise WorkloadError unless a tensor has the batch as its first dimension, and another dimension."""
    is_shared = not book.begins_with_batch(x, path)
    if is_shared and x.shape[:1] == (book.batch_size,):
        raise WorkloadError(
            f"{path} is called with a tensor of shape {tuple(x.shape)} whose rows all samples share: give "
            "each sample its own"
        )
    if is_shared or x.dim() < 2:
        raise WorkloadError(
            f"{path} is called with a tensor of shape {tuple(x.shape)}; per-sample gradients need the batch, "
            f"here {book.batch_size}, as its first dimension, and another one"
        )
