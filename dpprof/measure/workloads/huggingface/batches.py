"""Batches of the kind that a model takes, and the losses of its samples."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.workloads.data import get_random_dataloader

# By position where that is possible: Opacus's expanded weights take nothing by name.
Batch = tuple[Tensor | tuple[Tensor, ...] | dict[str, Tensor], Tensor]
# The shortest sequence of a padded batch, as a share of the longest.
SHORTEST = 0.25


def of_next_tokens(config: ExperimentConfig, vocab_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Full sequences of tokens, and the tokens that follow: (B, T) both."""
    return iter(
        get_random_dataloader(
            config.batch_size, config.seq_len, vocab_size, config.device, data=config.data, seed=config.seed
        )
    )


def of_padded_text(
    config: ExperimentConfig, vocab_size: int, padding: int, num_labels: int, arguments: Sequence[str]
) -> Iterator[Batch]:
    """Sequences of different lengths, padded to seq_len, with a mask; a label for each.

    Lengths are uniform between a quarter of seq_len and all of it. `arguments` are those of the model.
    """
    by_position = list(arguments[:2]) == ["input_ids", "attention_mask"]
    generator = torch.Generator(config.device).manual_seed(config.seed)
    for ids, _ in of_next_tokens(config, vocab_size):
        lengths = _drawn(max(1, int(SHORTEST * config.seq_len)), config.seq_len + 1, ids, generator)
        mask = (torch.arange(config.seq_len, device=ids.device) < lengths.unsqueeze(1)).long()
        labels = _drawn(0, num_labels, ids, generator)
        padded = ids.where(mask.bool(), padding)
        inputs = (padded, mask) if by_position else {"input_ids": padded, "attention_mask": mask}
        yield inputs, labels


def of_signals(config: ExperimentConfig, shape: tuple[int, ...], num_labels: int) -> Iterator[Batch]:
    """Normally distributed images or spectrograms of a shape; a label for each."""
    generator = torch.Generator(config.device).manual_seed(config.seed)
    while True:
        size = (config.batch_size, *shape)
        inputs = torch.randn(size, generator=generator, device=config.device)
        yield inputs, _drawn(0, num_labels, inputs, generator)


def next_token_loss(outputs: Any, labels_BT: Tensor) -> Tensor:
    """Cross-entropy averaged over each sequence's tokens, shape (B,)."""
    losses = F.cross_entropy(outputs.logits.flatten(0, 1), labels_BT.flatten(), reduction="none")
    return losses.view(labels_BT.shape).mean(dim=1)


def label_loss(outputs: Any, labels_B: Tensor) -> Tensor:
    """Cross-entropy of each sample, shape (B,)."""
    return F.cross_entropy(outputs.logits, labels_B, reduction="none")


def _drawn(low: int, high: int, like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(low, high, like.shape[:1], generator=generator, device=like.device)
