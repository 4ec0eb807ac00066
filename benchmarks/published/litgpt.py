"""Models of litgpt's tables of resources, as its `finetune/lora.py` of 2023 trained them by LoRA.

Queries, keys and values are one linear layer, whose adapters fill those of queries and values and leave
zeros for keys. The head gives logits for 128 positions at a time, Lightning's Fabric converts these to fp32,
and the loss takes each such chunk on its own. `litgpt.json` has peaks of github.com/Lightning-AI/litgpt.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig

CHUNK, RANK, DROPOUT = 128, 8, 0.05


@dataclass(frozen=True)
class _Shape:
    width: int
    layers: int
    heads: int
    vocabulary: int
    rotary: float
    shares_norm: bool
    head_bias: bool


_SHAPES = {
    "phi-1.5": _Shape(2048, 24, 32, 51_200, 0.5, shares_norm=True, head_bias=True),
    "stablelm-3b": _Shape(4096, 16, 32, 50_688, 0.25, shares_norm=False, head_bias=False),
}


class _AdaptedInputs(nn.Module):
    """Queries, keys and values of all heads, with adapters of queries and values."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 3 * width)
        self.dropout = nn.Dropout(DROPOUT)
        self.first = nn.Parameter(torch.randn(2 * RANK, width) / width**0.5)
        self.second = nn.Parameter(torch.zeros(2 * width, RANK))
        adapted = torch.cat((torch.arange(width), torch.arange(2 * width, 3 * width)))
        self.adapted: Tensor
        self.register_buffer("adapted", adapted, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (B, T, 3 * width)."""
        inputs = self.linear(x)
        low = F.linear(self.dropout(x), self.first).transpose(1, 2)
        high = F.conv1d(low, self.second.unsqueeze(-1), groups=2).permute(2, 0, 1)
        zeros = high.new_zeros((*high.shape[:2], inputs.shape[-1])).flatten(0, 1)
        padded = zeros.index_copy(1, self.adapted, high.reshape(-1, high.shape[-1]))
        change = padded.view(*high.shape[:2], -1).transpose(0, 1)
        summed: Tensor = inputs + 2 * change
        return summed


class _Attention(nn.Module):
    def __init__(self, shape: _Shape, length: int) -> None:
        super().__init__()
        self.heads, size = shape.heads, shape.width // shape.heads
        self.rotated = int(shape.rotary * size)
        self.inputs, self.out = _AdaptedInputs(shape.width), nn.Linear(shape.width, shape.width)
        angles = torch.outer(torch.arange(length), 1e4 ** -(torch.arange(0, self.rotated, 2) / self.rotated))
        self.turns: Tensor
        self.register_buffer(
            "turns", torch.stack((angles.cos(), angles.sin())).repeat(1, 1, 2), persistent=False
        )

    def forward(self, x: Tensor) -> Tensor:
        inputs = self.inputs(x).view(*x.shape[:2], self.heads, 3, -1).permute(0, 2, 3, 1, 4)
        q, k, v = (each.squeeze(2) for each in inputs.split(1, dim=2))
        attended = F.scaled_dot_product_attention(self._turned(q), self._turned(k), v, is_causal=True)
        result: Tensor = self.out(attended.transpose(1, 2).reshape(x.shape))
        return result

    def _turned(self, x: Tensor) -> Tensor:
        cosine, sine = self.turns
        part, rest = x[..., : self.rotated], x[..., self.rotated :]
        first, second = part.chunk(2, dim=-1)
        turned = part * cosine + torch.cat((-second, first), dim=-1) * sine
        return torch.cat((turned.to(x.dtype), rest), dim=-1)


class _Block(nn.Module):
    def __init__(self, shape: _Shape, length: int) -> None:
        super().__init__()
        self.before_attention, self.attention = nn.LayerNorm(shape.width), _Attention(shape, length)
        self.before_feed_forward = None if shape.shares_norm else nn.LayerNorm(shape.width)
        self.first, self.last = (
            nn.Linear(shape.width, 4 * shape.width),
            nn.Linear(4 * shape.width, shape.width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add attention and the feed-forward part to their common input, shape (B, T, width)."""
        normed = self.before_attention(x)
        attended = self.attention(normed)
        if self.before_feed_forward is not None:
            normed = self.before_feed_forward(x)
        result: Tensor = self.last(F.gelu(self.first(normed))) + attended + x
        return result


class _Model(nn.Module):
    def __init__(self, shape: _Shape, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.Sequential(*(_Block(shape, length) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=shape.head_bias)

    def forward(self, ids: Tensor) -> list[Tensor]:
        """Token ids, shape (B, T); logits in chunks, shapes (B, 128 or fewer, vocabulary)."""
        x = self.norm(self.blocks(self.tokens(ids)))
        return [chunk.float() for chunk in [self.head(part) for part in x.split(CHUNK, dim=1)]]


def model(config: ExperimentConfig) -> tuple[nn.Module, Iterator[tuple[Tensor, Tensor]], Any]:
    """Return a model in bf16, called `name`, with random tokens."""
    made = _Model(_SHAPES[str(config.named_options["name"])], config.seq_len).to(torch.bfloat16)
    size, vocabulary = (config.batch_size, config.seq_len), made.head.out_features
    ids = (torch.randint(vocabulary, size, device=config.device) for _ in itertools.count())

    def loss(logits: list[Tensor], labels: Tensor) -> Tensor:
        logits[-1] = logits[-1][:, :-1]
        parts = labels[:, 1:].split(CHUNK, dim=1)
        losses = [
            F.cross_entropy(chunk.flatten(0, 1), part.flatten(), reduction="none").view(part.shape)
            for chunk, part in zip(logits, parts, strict=True)
        ]
        return torch.cat(losses, dim=1).mean(dim=1)

    return made, ((each, each) for each in ids), loss
