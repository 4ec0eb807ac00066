"""Number of physical batches in a Poisson-sampled logical batch.

A logical batch has Binomial(N, q) documents. Opacus's `BatchMemoryManager` splits it into the fewest physical
batches of at most m documents, about equal in size, and keeps an empty one: max(1, ceil(Binomial(N, q) / m)).
(The length of Opacus's sampler is N q / m per logical batch, which is too small; its sampler for several
ranks drops empty batches.)
"""

import math
from bisect import bisect_left

import numpy as np

# Window around the mean: batches outside have a probability below 1e-17, by Bernstein's inequality.
_DEVIATIONS, _DOCUMENTS = 9, 50
# From this ratio of deviation to physical batch on, the last physical batch's missing part is uniform.
_UNIFORM = 3


def expected_physical_batches(
    num_documents: int, sample_rate: float, physical_batch: int, num_devices: int = 1
) -> float:
    """Return the mean number of physical batches in a logical batch, to a relative error of 1e-12.

    With several devices, each drawing from its own `num_documents`, it is that of the largest draw, which the
    others wait for. Sums the probabilities of more than k batches. Where that would take long, one device has
    a closed form: the mean of the part missing to a multiple of m is a finite Fourier series, whose
    coefficients besides the constant are below exp(-8 (deviation / m)^2), thus below 1e-31.
    """
    from scipy.stats import binom

    mean, deviation = _moments(num_documents, sample_rate)
    are_empty = float(binom.pmf(0, num_documents, sample_rate)) ** num_devices
    if num_devices == 1 and deviation >= _UNIFORM * physical_batch:
        return (mean + (physical_batch - 1) / 2) / physical_batch + are_empty
    return _mean_of_largest(num_documents, sample_rate, physical_batch, num_devices) + are_empty


def expected_largest_draw(num_documents: int, sample_rate: float, num_devices: int) -> float:
    """Return the mean number of documents on the device that draws the most."""
    if num_devices == 1:
        return num_documents * sample_rate
    return _mean_of_largest(num_documents, sample_rate, 1, num_devices)


def _mean_of_largest(num_documents: int, sample_rate: float, step: int, num_devices: int) -> float:
    """Return the mean of ceil(draw / step) for the largest of several draws."""
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
    """Return a count that no logical batch exceeds, with probability 1 - `tail` (union bound)."""
    from scipy.stats import binom

    def is_enough(count: int) -> bool:
        return bool(binom.sf(count * physical_batch, num_documents, sample_rate) <= tail / steps)

    largest = math.ceil(num_documents / physical_batch)
    return 1 + bisect_left(range(1, largest + 1), True, key=is_enough)


def _moments(num_documents: int, sample_rate: float) -> tuple[float, float]:
    mean = num_documents * sample_rate
    return mean, math.sqrt(mean * (1 - sample_rate))
