"""Which module has which rule, and puts the rules in place of the modules' forwards.

A rule is for a class as it is: a subclass that computes something else has none. What has none goes through
`torch.func` as a whole, with all modules below it.
"""

from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.parametrize import is_parametrized

from dpprof.measure.trainers.per_sample.any_module import call_any
from dpprof.measure.trainers.per_sample.book import Book
from dpprof.measure.trainers.per_sample.convolutions import ConvFunction, Geometry
from dpprof.measure.trainers.per_sample.functions import (
    EmbeddingFunction,
    GroupNormFunction,
    LayerNormFunction,
    LinearFunction,
    Reports,
    RMSNormFunction,
)

# Called with the module, its path, the book, and what the module is called with.
Rule = Callable[..., Any]


def install(model: nn.Module, book: Book) -> list[str]:
    """Put rules in place of the forwards of all modules with trainable parameters.

    Returns the paths of those that have no rule of their own. Raises ValueError, which names the module, for
    one whose per-sample gradients would be wrong or cannot be computed.
    """
    for path, module in model.named_modules():
        _refuse(path or "the model", module)
    without_rule = []
    for path, module in list(_owners(model)):
        rule = _rule(module)
        if rule is None:
            rule = call_any
            without_rule.append(path or "the model")
        module.forward = MethodType(_replaced(rule, path or "the model", book), module)
    return without_rule


def _replaced(rule: Rule, path: str, book: Book) -> Callable[..., Any]:
    """A method that follows the rule during a step, and is the module's own otherwise."""

    def forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not book.is_open:
            return type(module).forward(module, *args, **kwargs)
        return rule(module, path, book, *args, **kwargs)

    return forward


def _refuse(path: str, module: nn.Module) -> None:
    if isinstance(module, _BatchNorm):
        raise ValueError(
            f"{path} normalises over the batch, so that no sample has a gradient of its own: replace it by "
            "nn.GroupNorm"
        )
    if not any(p.requires_grad for p in module.parameters()):
        return
    if isinstance(module, nn.RNNBase):
        raise ValueError(
            f"{path} has no rule, and torch.func cannot run it sample by sample: train with flat"
        )
    if getattr(module, "batch_first", True) is False:
        raise ValueError(f"{path} takes the batch as its second dimension: set batch_first=True")
    if "forward" in module.__dict__:
        raise ValueError(f"{path} has a forward of its own, set on the instance: make it a subclass's")
    if type(module) in _RULES and not isinstance(module._parameters.get("weight"), nn.Parameter):
        raise ValueError(
            f"{path}.weight is computed from other parameters, once for all samples: remove the pruning or "
            "the weight norm that does so"
        )
    if is_parametrized(module):
        raise ValueError(f"{path} has a parametrization, which is computed once for all samples: remove it")


def _owners(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules that trainable parameters belong to; nothing below one without a rule."""
    lists = [child for child in module.children() if isinstance(child, nn.ParameterList | nn.ParameterDict)]
    own = [p for each in (module, *lists) for p in each.parameters(recurse=False)]
    if any(p.requires_grad for p in own):
        yield path, module
        if _rule(module) is None:
            return
    for name, child in module.named_children():
        yield from _owners(child, f"{path}.{name}" if path else name)


def _linear(module: Any, path: str, book: Book, input: Tensor) -> Any:
    check_batch(path, input, book)
    reports = Reports(book, module)
    return LinearFunction.apply(input, module.weight, module.bias, reports, False)


def _transposed_linear(module: Any, path: str, book: Book, x: Tensor) -> Any:
    check_batch(path, x, book)
    reports = Reports(book, module)
    return LinearFunction.apply(x, module.weight, module.bias, reports, True)


def _embedding(module: Any, path: str, book: Book, input: Tensor) -> Any:
    if input.dim() < 2 or input.shape[0] != 1:
        check_batch(path, input, book)
    reports = Reports(book, module)
    return EmbeddingFunction.apply(input, module.weight, module.padding_idx, reports, book.batch_size)


def _layer_norm(module: Any, path: str, book: Book, input: Tensor) -> Any:
    check_batch(path, input, book)
    reports = Reports(book, module)
    shape, eps = module.normalized_shape, module.eps
    return LayerNormFunction.apply(input, module.weight, module.bias, shape, eps, reports)


def _rms_norm(module: Any, path: str, book: Book, x: Tensor) -> Any:
    check_batch(path, x, book)
    reports = Reports(book, module)
    return RMSNormFunction.apply(x, module.weight, module.normalized_shape, module.eps, reports)


def _group_norm(module: Any, path: str, book: Book, input: Tensor) -> Any:
    check_batch(path, input, book)
    reports = Reports(book, module)
    groups, eps = module.num_groups, module.eps
    return GroupNormFunction.apply(input, module.weight, module.bias, groups, eps, reports)


def _convolution(module: Any, path: str, book: Book, input: Tensor) -> Any:
    check_batch(path, input, book)
    padding = module.padding
    if isinstance(padding, str) or module.padding_mode != "zeros":
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        input = F.pad(input, module._reversed_padding_repeated_twice, mode=mode)
        padding = [0] * len(module.stride)
    geometry = Geometry(list(module.stride), list(padding), list(module.dilation), module.groups)
    reports = Reports(book, module)
    return ConvFunction.apply(input, module.weight, module.bias, geometry, reports)


_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.GroupNorm: _group_norm,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
}


def _rule(module: nn.Module) -> Rule | None:
    kind: Any = type(module)
    if kind is nn.Embedding and (module.max_norm is not None or module.scale_grad_by_freq or module.sparse):
        return None
    if kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils":
        return _transposed_linear
    for known, rule in _RULES.items():
        inner = "_conv_forward"  # where a convolution does its work
        if kind.forward is known.forward and getattr(kind, inner, None) is getattr(known, inner, None):
            return rule
    return None


def check_batch(path: str, x: Tensor, book: Book) -> None:
    """Raises ValueError for a tensor whose first dimension is not the batch's, or that has no other."""
    if x.shape[:1] != (book.batch_size,) or x.dim() < 2:
        raise ValueError(
            f"{path} is called with a tensor of shape {tuple(x.shape)}; per-sample gradients need the batch, "
            f"here {book.batch_size}, as its first dimension, and another one"
        )
