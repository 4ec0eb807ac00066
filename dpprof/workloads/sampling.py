"""Poisson sampling: every sample of the data is in a step's batch with the same small probability.

The size of a batch then varies from step to step, Poisson distributed around `batch_size` (the limit of the
binomial for a small sampling rate), and now and then a batch is empty.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from dpprof.config import ExperimentConfig
from dpprof.poisson import largest_batch

EMPTY = 0


def batch_sizes(config: ExperimentConfig, *, is_timed: bool) -> Iterator[int]:
    """The number of samples in each step's batch, without end.

    The first batch, of a warm-up step, is empty: a model that cannot take one shows it at once. Where steps
    are timed, the others are drawn by the seed. Where memory is looked at, they are as large as the largest
    of the timed steps; in an estimate, as large as `poisson_tail` says.
    """
    yield EMPTY
    if config.is_estimate:
        yield from itertools.repeat(largest_batch(config.batch_size, config.poisson_tail))
    if is_timed:
        yield from _drawn(config)
    warm_up, timed = config.warmup_steps - 1, config.measured_steps
    yield from itertools.repeat(max(itertools.islice(_drawn(config), warm_up, warm_up + timed)))


def _drawn(config: ExperimentConfig) -> Iterator[int]:
    generator = np.random.default_rng(config.seed)
    while True:
        yield int(generator.poisson(config.batch_size))


def sampled(batches: Iterable[Any], sizes: Iterable[int]) -> Iterator[Any]:
    """Batches of the given sizes, cut from a workload's own, whatever the size of these."""
    source = iter(batches)
    for size in sizes:
        batch = next(source)
        while num_samples(batch) < size:
            batch = _joined(batch, next(source))
        # A copy, so that what was cut off does not stay in memory.
        yield tree_map(lambda t, n=size: t[:n].clone() if isinstance(t, Tensor) else t, batch)


def num_samples(batch: Any) -> int:
    """Samples in a batch: the first dimension of its tensors."""
    tensors = (leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim())
    return int(next(tensors).shape[0])


def _joined(one: Any, other: Any) -> Any:
    return tree_map(lambda a, b: torch.cat([a, b]) if isinstance(a, Tensor) else a, one, other)
