"""Convolutions over one or two dimensions: products of the output gradient with the unfolded input.

Shape suffixes: B samples, C channels, G groups, T output positions, K the kernel's positions.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dpprof.measure.trainers.per_sample.functions import Gradients, Reports, as_autocast
from dpprof.measure.trainers.per_sample.uses import Products, added, scaled
from dpprof.vocabulary.norm_forms import LayerShape


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
        return torch.ops.aten.convolution_backward(
            gradient,
            x,
            weight,
            None,
            self.stride,
            self.padding,
            self.dilation,
            False,
            [0] * len(self.stride),
            self.groups,
            [of_input, not of_input, False],
        )[:2]


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
        gradient = scaled(self.gradient, factors_B)
        return added(self.geometry.backward(gradient, self.x, self.weight, of_input=False)[1], onto)


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
        return function(x_, weight_, bias_, *ctx.geometry)  # type: ignore[arg-type]

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
