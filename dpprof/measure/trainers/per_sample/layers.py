"""Which module has which rule, and puts the rules in place of the modules' forwards.

A rule is for a class as it is: a subclass that computes something else has none. What has none goes through
`torch.func` as a whole, with all modules below it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from dpprof.measure.trainers.per_sample.any_module import AnyModule
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

Forward = Callable[..., Any]


def install(model: nn.Module, book: Book) -> list[str]:
    """Put rules in place of the forwards of all modules with trainable parameters.

    Returns the paths of those that have no rule of their own.
    """
    without_rule = []
    for path, module in list(_owners(model)):
        rule = _rule(module)
        forward: Forward
        if rule is not None:
            forward = rule(module, path, book)
        else:
            forward = AnyModule(module, path or "the model", book)
            without_rule.append(path or "the model")
        module.forward = forward
    return without_rule


def _owners(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules that trainable parameters belong to; nothing below one without a rule."""
    if any(p.requires_grad for p in module.parameters(recurse=False)):
        yield path, module
        if _rule(module) is None:
            return
    for name, child in module.named_children():
        yield from _owners(child, f"{path}.{name}" if path else name)


def _linear(module: Any, path: str, book: Book) -> Forward:
    def forward(input: Tensor) -> Any:
        check_batch(path, input, book)
        reports = Reports(book, module.weight, module.bias)
        return LinearFunction.apply(input, module.weight, module.bias, reports, False)

    return forward


def _transposed_linear(module: Any, path: str, book: Book) -> Forward:
    def forward(x: Tensor) -> Any:
        check_batch(path, x, book)
        reports = Reports(book, module.weight, module.bias)
        return LinearFunction.apply(x, module.weight, module.bias, reports, True)

    return forward


def _embedding(module: Any, path: str, book: Book) -> Forward:
    def forward(input: Tensor) -> Any:
        if input.dim() < 2 or input.shape[0] != 1:
            check_batch(path, input, book)
        reports = Reports(book, module.weight, None)
        return EmbeddingFunction.apply(input, module.weight, module.padding_idx, reports, book.batch_size)

    return forward


def _layer_norm(module: Any, path: str, book: Book) -> Forward:
    def forward(input: Tensor) -> Any:
        check_batch(path, input, book)
        reports = Reports(book, module.weight, module.bias)
        shape, eps = module.normalized_shape, module.eps
        return LayerNormFunction.apply(input, module.weight, module.bias, shape, eps, reports)

    return forward


def _rms_norm(module: Any, path: str, book: Book) -> Forward:
    def forward(x: Tensor) -> Any:
        check_batch(path, x, book)
        reports = Reports(book, module.weight, None)
        return RMSNormFunction.apply(x, module.weight, module.normalized_shape, module.eps, reports)

    return forward


def _group_norm(module: Any, path: str, book: Book) -> Forward:
    def forward(input: Tensor) -> Any:
        check_batch(path, input, book)
        reports = Reports(book, module.weight, module.bias)
        groups, eps = module.num_groups, module.eps
        return GroupNormFunction.apply(input, module.weight, module.bias, groups, eps, reports)

    return forward


def _convolution(module: Any, path: str, book: Book) -> Forward:
    padding, stride, dilation = (
        list(module.padding) if not isinstance(module.padding, str) else None,
        list(module.stride),
        list(module.dilation),
    )
    if padding is None or module.padding_mode != "zeros":
        geometry = Geometry(stride, [0] * len(stride), dilation, module.groups)
        before = module._reversed_padding_repeated_twice
    else:
        geometry = Geometry(stride, padding, dilation, module.groups)
        before = None
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode

    def forward(input: Tensor) -> Any:
        check_batch(path, input, book)
        reports = Reports(book, module.weight, module.bias)
        x = F.pad(input, before, mode=mode) if before is not None else input
        return ConvFunction.apply(x, module.weight, module.bias, geometry, reports)

    return forward


_RULES: dict[type[nn.Module], Callable[[Any, str, Book], Forward]] = {
    nn.Linear: _linear,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.GroupNorm: _group_norm,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
}


def _rule(module: nn.Module) -> Callable[[Any, str, Book], Forward] | None:
    kind = type(module)
    if kind is nn.Embedding and (module.max_norm is not None or module.scale_grad_by_freq or module.sparse):
        return None
    if kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils":
        return _transposed_linear
    return next((rule for known, rule in _RULES.items() if kind.forward is known.forward), None)


def check_batch(path: str, x: Tensor, book: Book) -> None:
    """Raises ValueError for a tensor whose first dimension is not the batch's."""
    if x.shape[:1] != (book.batch_size,) or x.dim() < 2:
        raise ValueError(
            f"{path or 'the model'} is called with a tensor of shape {tuple(x.shape)}; per-sample gradients "
            f"need the batch, here {book.batch_size}, as its first dimension"
        )
