"""Poisson sampling: every sample of the data is in a step's batch with the same small probability.

The batch size is Poisson distributed around `batch_size`, the limit of the binomial for a small rate.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.measuring import SAMPLED_WARMUP_STEPS

EMPTY = 0


def batch_sizes(config: ExperimentConfig, *, is_timed: bool) -> Iterator[int]:
    """Yield the number of samples in each step's batch, without end.

    The first batch has `batch_size` samples and the second none, so that a model that cannot train on these
    fails during warm-up. If steps are timed, the other sizes are drawn by the seed. If memory is measured,
    they equal the largest of the timed ones. In an estimate they are as `poisson_tail` says, after one of a
    standard deviation above the expected size: changing sizes fragment memory.
    """
    yield from (config.batch_size, EMPTY)
    if config.is_estimate:
        yield round(config.batch_size + math.sqrt(config.batch_size))
        yield from itertools.repeat(config.estimated_batch)
    if is_timed:
        yield from _drawn(config)
    how = config.measuring
    first = how.warmup_steps - (SAMPLED_WARMUP_STEPS - 1)
    yield from itertools.repeat(max(itertools.islice(_drawn(config), first, first + how.measured_steps)))


def _drawn(config: ExperimentConfig) -> Iterator[int]:
    generator = np.random.default_rng(config.seed)
    while True:
        yield int(generator.poisson(config.batch_size))


def sampled(batches: Iterable[Any], sizes: Iterable[int]) -> Iterator[Any]:
    """Return batches of the given sizes, cut from a workload's batches of any size."""
    source = iter(batches)
    return (_cut(source, size) for size in sizes)


def num_samples(batch: Any) -> int:
    """Return the number of samples in a batch: the first dimension of its tensors."""
    tensors = (leaf for leaf in tree_leaves(batch) if _has_samples(leaf))
    return int(next(tensors).shape[0])


def _cut(source: Iterator[Any], size: int) -> Any:
    """Return one batch of a size, as copies, so that its source is not kept in memory."""
    batch = next(source)
    while num_samples(batch) < size:
        batch = tree_map(lambda a, b: torch.cat([a, b]) if _has_samples(a) else a, batch, next(source))
    return tree_map(lambda t: t[:size].clone() if _has_samples(t) else t, batch)


def _has_samples(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0
