"""How large Poisson-sampled batches get: plain arithmetic."""

import math


def largest_batch(expected: float, tail: float) -> int:
    """The smallest size that no more than a share `tail` of Poisson-sampled batches exceed."""

    def probability(size: int) -> float:
        return math.exp(size * math.log(expected) - expected - math.lgamma(size + 1))

    size = math.ceil(expected)
    while probability(size) > 1e-9 * tail:  # the rest is negligible
        size += 1
    exceeding = 0.0
    while size > 0 and exceeding + probability(size) <= tail:
        exceeding += probability(size)
        size -= 1
    return size
