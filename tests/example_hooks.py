"""Workloads that draw random numbers, call modules again in backward, or have layers that Opacus has no grad
sampler for, for the tests.
"""

import torch
import torch.nn.functional as F
from example_trapped import WIDTH, Factory, calling, linear, with_body
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Scaling(nn.Module):
    """(B, T, D), scaled by a parameter of its own after dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.scale * self.dropout(x)
        return out


dropout = with_body(lambda: nn.Sequential(linear(), nn.Dropout(0.5), linear()))
dropout_by_function = calling(lambda layers, x: layers[1](F.dropout(layers[0](x))), linear, linear)
dropout_under_functorch = with_body(Scaling)


def twice(use_reentrant: bool) -> Factory:
    """Two layers whose activations are computed again in backward."""
    return calling(
        lambda layers, x: checkpoint(layers[0], x, use_reentrant=use_reentrant),
        lambda: nn.Sequential(linear(), nn.ReLU(), linear()),
    )


checkpointed, checkpointed_reentrant = twice(False), twice(True)


class Transposed(nn.Module):
    """A linear layer as GPT-2's code has it: its weight is (in, out)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x @ self.weight
        return out


no_sampler = calling(lambda layers, x: layers[1](layers[0](x)), Transposed, Transposed)
