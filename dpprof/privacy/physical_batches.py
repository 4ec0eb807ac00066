"""How many physical batches a logical batch takes if it is drawn by Poisson sampling.

A logical batch has Binomial(N, q) documents. Opacus's `BatchMemoryManager` splits it into as few physical
batches of at most m documents as there can be, about equally large, and passes on an empty one, which is a
physical batch as well: max(1, ceil(Binomial(N, q) / m)) of them. (The length that Opacus's sampler has is
N q / m for each logical batch, which is too small; its sampler for several ranks leaves out empty batches.)
"""

import math
from bisect import bisect_left

import numpy as np

# How far from the mean a batch may be that counts: nearer than 1e-17 to certain, by Bernstein's inequality.
_DEVIATIONS, _DOCUMENTS = 9, 50
# From so many physical batches in a deviation on, what a batch lacks to a multiple of m is uniform.
_UNIFORM = 3


def expected_physical_batches(
    num_documents: int, sample_rate: float, physical_batch: int, num_devices: int = 1
) -> float:
    """The mean of a logical batch's physical batches, to 1e-12 of it; of several devices, each of which draws
    from so many documents of its own, on the one that draws the most: the others wait for it.

    A sum of the probabilities of more than k of them. Where it would be long, there is a closed form for one
    device: the mean of what a batch lacks to a multiple of m is a finite Fourier series, whose coefficients
    beside the constant are below exp(-8 (deviation / m)^2), thus below 1e-31.
    """
    from scipy.stats import binom

    mean, deviation = _moments(num_documents, sample_rate)
    are_empty = float(binom.pmf(0, num_documents, sample_rate)) ** num_devices
    if num_devices == 1 and deviation >= _UNIFORM * physical_batch:
        return (mean + (physical_batch - 1) / 2) / physical_batch + are_empty
    return _mean_of_largest(num_documents, sample_rate, physical_batch, num_devices) + are_empty


def expected_largest_draw(num_documents: int, sample_rate: float, num_devices: int) -> float:
    """The mean of the documents on that one of several devices which draws the most."""
    if num_devices == 1:
        return num_documents * sample_rate
    return _mean_of_largest(num_documents, sample_rate, 1, num_devices)


def _mean_of_largest(num_documents: int, sample_rate: float, step: int, num_devices: int) -> float:
    """The mean of ceil(draw / step), of the largest of several draws."""
    from scipy.stats import binom

    mean, deviation = _moments(num_documents, sample_rate)
    window = _DEVIATIONS * deviation + _DOCUMENTS
    first = max(0, math.floor((mean - window) / step))
    last = math.ceil((mean + window) / step)
    beyond = binom.sf([k * step for k in range(first, last + 1)], num_documents, sample_rate)
    with np.errstate(divide="ignore"):  # certain: log(0)
        return first + float(-np.expm1(num_devices * np.log1p(-beyond)).sum())


def most_physical_batches(
    num_documents: int, sample_rate: float, physical_batch: int, steps: int, tail: float = 1e-3
) -> int:
    """A number that no logical batch of a whole training exceeds, with a probability of at least 1 - `tail`.

    The least one for which each of the steps exceeds it with a probability of at most `tail` / steps: a union
    bound.
    """
    from scipy.stats import binom

    def is_enough(count: int) -> bool:
        return bool(binom.sf(count * physical_batch, num_documents, sample_rate) <= tail / steps)

    largest = math.ceil(num_documents / physical_batch)
    return 1 + bisect_left(range(1, largest + 1), True, key=is_enough)


def _moments(num_documents: int, sample_rate: float) -> tuple[float, float]:
    mean = num_documents * sample_rate
    return mean, math.sqrt(mean * (1 - sample_rate))
