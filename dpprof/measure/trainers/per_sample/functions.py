"""Layers whose backward computes the input's gradient and reports the weights' to the book.

Each is applied to input, weight and bias of a module, and the reports of the call. Weights are inputs of the
`torch.autograd.Function`, so that the graph reaches the first trainable layer, but get gradients only while
the book is summing. Tensors are saved as in torch's layers, so activation checkpointing works. Shape
suffixes: B samples, T positions, M outputs, N inputs, D normalised; of convolutions, which are products of
the output gradient with the unfolded input, C channels, G groups, K the kernel's positions.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from dpprof.measure.trainers.parallel import kind_of
from dpprof.measure.trainers.per_sample import uses
from dpprof.measure.trainers.per_sample.book import Book
from dpprof.measure.trainers.per_sample.uses import PerSample, Products, Rows, Use, over_positions
from dpprof.vocabulary.norm_forms import LayerShape

Gradients = tuple[Tensor | None, ...]


class Reports:
    """Reports a call's gradients to the book, by the layer's parameters."""

    def __init__(self, book: Book, module: Any, path: str) -> None:
        self.book, self.module = book, module
        weight, bias = (
            book.shards.get((id(module), name), getattr(module, name, None)) for name in ("weight", "bias")
        )
        self.frozen_weight = weight if weight is not None and not weight.requires_grad else None
        self.weight = weight if weight is not None and weight.requires_grad else None
        self.bias = bias if bias is not None and bias.requires_grad else None
        book.count(path, self.weight, self.bias)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Trainable parameters of the layer."""
        return [p for p in (self.weight, self.bias) if p is not None]

    def take_bias(self, gradients: Tensor) -> Tensor | None:
        """Report a bias's per-sample gradients."""
        return None if self.bias is None else self.book.take(self.bias, PerSample(gradients))

    def take_weight(self, use: Use) -> Tensor | None:
        """Report a weight's use."""
        return None if self.weight is None else self.book.take(self.weight, use)


def as_autocast(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Cast the arguments of a matrix product as autocast does.

    Not by autocast itself: its cache would keep weights that no longer require gradients.
    """
    device = next(t for t in tensors if t is not None).device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(t if t is None or t.dtype == torch.float64 else t.to(dtype) for t in tensors)


def is_transposed(kind: type[nn.Module]) -> bool:
    """Tell if a class is the `Conv1D` of Hugging Face: a linear layer whose weight is (N, M)."""
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


class LinearFunction(torch.autograd.Function):
    """`F.linear`, and that of a transposed weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, reports: Reports) -> Tensor:
        """(B, ..., N) -> (B, ..., M)."""
        ctx.reports, ctx.is_transposed = reports, is_transposed(kind_of(reports.module))
        ctx.input_has_hooks = bool(x._backward_hooks)
        x_, weight_, bias_ = as_autocast(x, weight, bias)
        ctx.save_for_backward(x_ if reports.weight is not None else None, weight)
        out = F.linear(x_.flatten(0, -2), weight_.T if ctx.is_transposed else weight_, bias_)
        # Not a view, which could not be changed in place.
        return torch.ops.aten._unsafe_view(out, [*x.shape[:-1], out.shape[-1]])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        """Return the input's gradient; report those of weight and bias to the book."""
        x, weight = ctx.saved_tensors
        reports: Reports = ctx.reports
        of_bias = reports.take_bias(over_positions(gradient)) if reports.bias is not None else None
        of_weight = of_input = None
        if ctx.needs_input_grad[0]:
            of_input = gradient @ (weight.T if ctx.is_transposed else weight).to(gradient.dtype)
        if x is not None:
            inputs, outputs = (t.reshape(t.shape[0], 1, -1, t.shape[-1]) for t in (x, gradient))
            sides = (inputs, outputs) if ctx.is_transposed else (outputs, inputs)
            of_weight = reports.take_weight(Products(*sides, weight.shape))
        return of_input, of_weight, of_bias, None


def below_last_layer(edge: GradientEdge) -> tuple[GradientEdge, Reports] | None:
    """Return the graph edge of the input, and the parameters, of the linear layer whose output ends here.

    None if there is no such layer, or if its input needs no gradient or has a hook, which would run twice.
    """
    reports = getattr(edge.node, "reports", None)
    if edge.node.name() != LinearFunction.__name__ + "Backward" or not isinstance(reports, Reports):
        return None
    node, number = edge.node.next_functions[0]
    has_hooks = edge.node.input_has_hooks  # type: ignore[attr-defined]  # as `LinearFunction.forward` left it
    return None if node is None or has_hooks else (GradientEdge(node, number), reports)


class EmbeddingFunction(torch.autograd.Function):
    """`F.embedding`. Ids with a single row, such as positions, are the same for every sample."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, _: None, reports: Reports) -> Tensor:
        """(B, ...) -> (B, ..., D)."""
        ctx.reports, ctx.padding = reports, reports.module.padding_idx
        ctx.save_for_backward(ids)
        ctx.weight_shape = weight.shape
        out, batch_size = F.embedding(ids, weight), reports.book.batch_size
        return out.expand(batch_size, *out.shape[1:]) if ids.shape[0] != batch_size else out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        """Report the weight's gradient; ids have none."""
        (ids,) = ctx.saved_tensors
        ids = ids.expand(gradient.shape[0], *ids.shape[1:]).reshape(gradient.shape[0], -1)
        rows = gradient.reshape(*ids.shape, gradient.shape[-1])
        if ctx.padding is not None:
            rows = rows.masked_fill((ids == ctx.padding).unsqueeze(-1), 0.0)
        return None, ctx.reports.take_weight(Rows(ids, rows, ctx.weight_shape)), None, None


class LayerNormFunction(torch.autograd.Function):
    """`F.layer_norm` with weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, reports: Reports) -> Tensor:
        """(B, ..., *shape) -> the same."""
        ctx.shape, ctx.eps, ctx.reports = reports.module.normalized_shape, reports.module.eps, reports
        ctx.save_for_backward(x, weight)
        return F.layer_norm(x, ctx.shape, weight, bias, ctx.eps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        """Normalise the input again, as the weight's gradient needs that anyway."""
        x, weight = ctx.saved_tensors
        reports: Reports = ctx.reports
        x = x.to(gradient.dtype)
        normal, mean, scale = torch.native_layer_norm(x, ctx.shape, None, None, ctx.eps)
        last = len(ctx.shape)
        of_bias = of_weight = of_input = None
        if reports.bias is not None:
            of_bias = reports.take_bias(over_positions(gradient, last))
        if reports.weight is not None:
            of_weight = reports.take_weight(PerSample(over_positions(normal.mul_(gradient), last)))
        del normal
        if ctx.needs_input_grad[0]:
            of_input = torch.ops.aten.native_layer_norm_backward(
                gradient.contiguous(),
                x,
                ctx.shape,
                mean,
                scale,
                None if weight is None else weight.to(gradient.dtype),
                None,
                [True, False, False],
            )[0]
        return of_input, of_weight, of_bias, None


class RMSNormFunction(torch.autograd.Function):
    """`F.rms_norm` with a weight (Zhang and Sennrich 2019)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, _: None, reports: Reports) -> Tensor:
        """(B, ..., *shape) -> the same."""
        ctx.reports, module = reports, reports.module
        ctx.dims = tuple(range(-len(module.normalized_shape), 0))
        ctx.eps = torch.finfo(x.dtype).eps if module.eps is None else module.eps
        ctx.save_for_backward(x, weight)
        return F.rms_norm(x, module.normalized_shape, weight, ctx.eps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        """Input gradient, with `n = x * scale`: `scale * (w * g - n * mean(n * w * g))`."""
        x, weight = ctx.saved_tensors
        x = x.to(gradient.dtype)
        scale = (x.square().mean(ctx.dims, keepdim=True) + ctx.eps).rsqrt()
        normal = x * scale
        of_weight = of_input = None
        if ctx.reports.weight is not None:
            use = PerSample(over_positions(normal * gradient, len(ctx.dims)))
            of_weight = ctx.reports.take_weight(use)
        if ctx.needs_input_grad[0]:
            weighted = gradient * weight.to(gradient.dtype)
            along = (normal * weighted).mean(ctx.dims, keepdim=True)
            of_input = weighted.sub_(normal.mul_(along)).mul_(scale)
        return of_input, of_weight, None, None


class GroupNormFunction(torch.autograd.Function):
    """`F.group_norm` with weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, reports: Reports) -> Tensor:
        """(B, C, ...) -> the same."""
        ctx.groups, ctx.eps, ctx.reports = reports.module.num_groups, reports.module.eps, reports
        ctx.save_for_backward(x, weight)
        return F.group_norm(x, ctx.groups, weight, bias, ctx.eps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        """Normalise the input again."""
        x, weight = ctx.saved_tensors
        reports: Reports = ctx.reports
        x, gradient = x.to(gradient.dtype).contiguous(), gradient.contiguous()
        samples, channels = x.shape[:2]
        sizes = (samples, channels, x[0, 0].numel(), ctx.groups)
        normal, mean, scale = torch.native_group_norm(x, None, None, *sizes, ctx.eps)
        of_bias = of_weight = of_input = None
        if reports.bias is not None:
            of_bias = reports.take_bias(gradient.reshape(samples, channels, -1).sum(2))
        if reports.weight is not None:
            product = normal.mul_(gradient).reshape(samples, channels, -1)
            of_weight = reports.take_weight(PerSample(product.sum(2)))
        if ctx.needs_input_grad[0]:
            of_input = torch.ops.aten.native_group_norm_backward(
                gradient, x, mean, scale, weight.to(gradient.dtype), *sizes, [True, False, False]
            )[0]
        return of_input, of_weight, of_bias, None


class Geometry(NamedTuple):
    """Geometry of a convolution; lists have one number per dimension."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    @classmethod
    def of(cls, module: Any) -> "Geometry":
        """Return the geometry of a module's input after `padded`."""
        padding = [0] * len(module.stride) if _is_padded_before(module) else list(module.padding)
        return cls(list(module.stride), padding, list(module.dilation), module.groups)

    def backward(
        self, gradient: Tensor, x: Tensor, weight: Tensor, *, of_input: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute the gradient of the input or of the weight, as torch does."""
        moves = (self.stride, self.padding, self.dilation, False, [0] * len(self.stride))
        mask = [of_input, not of_input, False]
        return torch.ops.aten.convolution_backward(gradient, x, weight, None, *moves, self.groups, mask)[:2]


def padded(module: Any, x: Tensor) -> Tensor:
    """Pad the input of a convolution unless torch's operator does."""
    if not _is_padded_before(module):
        return x
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    return F.pad(x, module._reversed_padding_repeated_twice, mode=mode)


def _is_padded_before(module: Any) -> bool:
    return isinstance(module.padding, str) or module.padding_mode != "zeros"


class Unfolded(Products):
    """Products of a convolution. The input is unfolded only while a norm is computed."""

    def __init__(self, x: Tensor, gradient: Tensor, weight: Tensor, geometry: Geometry) -> None:
        self.gradient = self.held = gradient  # forward keeps the input anyway
        self.x, self.weight, self.geometry = x.detach(), weight.detach(), geometry
        self.shape = weight.shape

    @property
    def left(self) -> Tensor:  # type: ignore[override]
        """Output gradient, (B, G, T, C / G)."""
        return _by_group(self.gradient.flatten(2), self.geometry.groups)

    @property
    def right(self) -> Tensor:  # type: ignore[override]
        """Unfolded input, (B, G, T, C / G x K)."""
        x, kernel, geometry = self.x, list(self.shape[2:]), self.geometry
        moves = [geometry.dilation, geometry.padding, geometry.stride]
        if len(kernel) == 1:  # torch unfolds images only
            x, kernel = x.unsqueeze(2), [1, *kernel]
            moves = [[still, *move] for still, move in zip([1, 0, 1], moves, strict=True)]
        return _by_group(torch.ops.aten.im2col(x, kernel, *moves), geometry.groups)

    @property
    def sizes(self) -> LayerShape:
        """B, G, T, M, N, without unfolding."""
        samples, channels = self.gradient.shape[:2]
        groups, positions = self.geometry.groups, self.gradient.shape[2:].numel()
        return LayerShape(samples, groups, positions, channels // groups, self.shape[1:].numel())

    def summed(self, factors_B: Tensor, onto: Tensor | None = None) -> Tensor:
        """Sum with torch's own backward."""
        gradient = uses.scaled(self.gradient, factors_B)
        return uses.added(self.geometry.backward(gradient, self.x, self.weight, of_input=False)[1], onto)


def _by_group(t_BCT: Tensor, groups: int) -> Tensor:
    """(B, C, T) -> (B, G, T, C / G)."""
    return t_BCT.unflatten(1, (groups, -1)).mT


class ConvFunction(torch.autograd.Function):
    """`F.conv1d` and `F.conv2d`, grouped ones too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, reports: Reports) -> Tensor:
        """(B, C, ...) -> (B, C, ...)."""
        ctx.geometry, ctx.reports = Geometry.of(reports.module), reports
        x_, weight_, bias_ = as_autocast(x, weight, bias)
        ctx.save_for_backward(x_, weight)
        function = F.conv1d if weight.dim() == 3 else F.conv2d
        return function(x_, weight_, bias_, *ctx.geometry)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        """Return the input's gradient; report those of weight and bias to the book."""
        x, weight = ctx.saved_tensors
        reports: Reports = ctx.reports
        weight = weight.to(gradient.dtype)
        of_bias = of_weight = of_input = None
        if reports.bias is not None:
            of_bias = reports.take_bias(gradient.flatten(2).sum(2))
        if ctx.needs_input_grad[0]:
            of_input = ctx.geometry.backward(gradient, x, weight, of_input=True)[0]
        if reports.weight is not None:
            of_weight = reports.take_weight(Unfolded(x, gradient, weight, ctx.geometry))
        return of_input, of_weight, of_bias, None
