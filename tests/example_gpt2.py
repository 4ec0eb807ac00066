"""A small model with the traps of a plain Hugging Face GPT-2, and the same without them, for the tests."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import register_pytree_node

from dpprof.config.experiment import ExperimentConfig

TOKENS, WIDTH, LONGEST = 23, 8, 64


class GPT2(nn.Module):
    """Token ids (B, T) -> logits (B, T, tokens)."""

    def __init__(self, *, dropout: float, is_tied: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Embedding(LONGEST, WIDTH)
        self.drop = nn.Dropout(dropout)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.mlp_drop = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)
        if is_tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids_BT: Tensor, positions_BT: Tensor | None = None) -> Any:
        if positions_BT is None:
            positions_BT = torch.arange(ids_BT.shape[1])[None]
        x = self.drop(self.tokens(ids_BT) + self.positions(positions_BT))
        return self.head(self.norm(x + self.mlp_drop(self.mlp(x))))


def loss(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    return F.cross_entropy(logits_BTV.mT, targets_BT, reduction="none").mean(dim=1)


def sequences(config: ExperimentConfig) -> Iterator[Tensor]:
    while True:
        yield torch.randint(TOKENS, (config.batch_size, config.seq_len + 1))


def plain(config: ExperimentConfig) -> tuple[Any, ...]:
    batches = ((ids[:, :-1], ids[:, 1:]) for ids in sequences(config))
    return GPT2(dropout=0.1, is_tied=True), batches, loss


def fixed(config: ExperimentConfig) -> tuple[Any, ...]:
    positions = torch.arange(config.seq_len).repeat(config.batch_size, 1)
    batches = (((ids[:, :-1].contiguous(), positions), ids[:, 1:]) for ids in sequences(config))
    return GPT2(dropout=0.0, is_tied=False), batches, loss


class Output(OrderedDict[str, Tensor]):
    """What Hugging Face's models return: torch knows its parts, but no names of them."""


register_pytree_node(
    Output,
    lambda out: (list(out.values()), list(out)),
    lambda values, keys: Output(zip(keys, values, strict=True)),
)


class Named(GPT2):
    """The same with its logits in such an output."""

    def forward(self, ids_BT: Tensor, positions_BT: Tensor | None = None) -> Output:
        return Output(logits=super().forward(ids_BT, positions_BT))


def named_outputs(config: ExperimentConfig) -> tuple[Any, ...]:
    _, batches, _ = fixed(config)
    return Named(dropout=0.0, is_tied=False), batches, lambda out, targets: loss(out["logits"], targets)
