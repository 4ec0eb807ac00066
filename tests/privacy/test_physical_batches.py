"""Numbers of physical batches: exact sums, and Opacus's own sampler."""

import math
from fractions import Fraction
from functools import cache
from itertools import accumulate, pairwise
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from opacus.utils.batch_memory_manager import BatchSplittingSampler
from opacus.utils.uniform_sampler import UniformWithReplacementSampler

from dpprof.privacy.physical_batches import (
    expected_largest_draw,
    expected_physical_batches,
    most_physical_batches,
)


@cache
def probabilities(num_documents: int, sample_rate: float) -> list[Fraction]:
    """Of each size of a logical batch, exactly."""
    q = Fraction(sample_rate)
    return [
        math.comb(num_documents, size) * q**size * (1 - q) ** (num_documents - size)
        for size in range(num_documents + 1)
    ]


def batches_of(size: int, physical_batch: int) -> int:
    return max(1, math.ceil(size / physical_batch))


@pytest.mark.parametrize("sample_rate", [1e-5, 0.3, 0.99, 1.0])
@pytest.mark.parametrize(("num_documents", "m"), [(1, 1), (10, 3), (150, 1), (150, 7), (150, 100)])
def test_as_exact_sums(num_documents: int, m: int, sample_rate: float) -> None:
    chances = probabilities(num_documents, sample_rate)
    exact = sum(chance * batches_of(size, m) for size, chance in enumerate(chances))
    assert expected_physical_batches(num_documents, sample_rate, m) == pytest.approx(float(exact), rel=1e-12)
    for steps, tail in ((1, 0.5), (100, 1e-3), (10**6, 1e-6)):
        most = most_physical_batches(num_documents, sample_rate, m, steps, tail)
        allowed = Fraction(tail) / steps
        assert sum(chances[most * m + 1 :]) <= allowed
        assert most == 1 or sum(chances[(most - 1) * m + 1 :]) > allowed


@pytest.mark.parametrize(
    ("sample_rate", "physical_batch", "num_devices"), [(1e-5, 1, 2), (0.3, 7, 5), (0.3, 1, 2), (0.99, 40, 5)]
)
def test_of_the_largest_draw_as_exact_sums(sample_rate: float, physical_batch: int, num_devices: int) -> None:
    at_most = list(accumulate(probabilities(30, sample_rate)))
    of_all = [chance**num_devices for chance in at_most]
    chances = [after - before for before, after in pairwise([Fraction(0), *of_all])]
    exact = sum(chance * batches_of(size, physical_batch) for size, chance in enumerate(chances))
    found = expected_physical_batches(30, sample_rate, physical_batch, num_devices)
    assert found == pytest.approx(float(exact), rel=1e-12)
    exact = sum(chance * size for size, chance in enumerate(chances))
    assert expected_largest_draw(30, sample_rate, num_devices) == pytest.approx(float(exact), rel=1e-12)
    assert expected_largest_draw(30, sample_rate, 1) == 30 * sample_rate


@pytest.mark.parametrize(("num_documents", "sample_rate"), [(10**8, 0.5), (10**8, 1e-5), (10**6, 1e-2)])
def test_the_closed_form_goes_over_into_the_sum(num_documents: int, sample_rate: float) -> None:
    """One document more or less in a physical batch changes the formula, and the mean as its law says."""
    mean = num_documents * sample_rate
    deviation = math.sqrt(mean * (1 - sample_rate))
    for m in range(int(deviation / 3) - 2, int(deviation / 3) + 3):
        law = (mean + (m - 1) / 2) / m  # exact but for 1e-31
        assert expected_physical_batches(num_documents, sample_rate, m) == pytest.approx(law, rel=1e-12)


@pytest.mark.parametrize("sample_rate", [0.005, 0.05, 0.2])
def test_as_opacus_splits_a_poisson_sample(sample_rate: float) -> None:
    num_documents, m, steps = 200, 3, 2000
    sampler = UniformWithReplacementSampler(
        num_samples=num_documents,
        sample_rate=sample_rate,
        generator=torch.Generator().manual_seed(3),
        steps=steps,
    )
    optimizer = Mock()
    splitting = BatchSplittingSampler(sampler=sampler, max_batch_size=m, optimizer=optimizer)
    sizes = [len(batch) for batch in splitting]
    skips = [call.kwargs["do_skip"] for call in optimizer.signal_skip_step.call_args_list]
    counts = np.diff([0, *(i + 1 for i, skip in enumerate(skips) if not skip)])
    assert len(counts) == steps
    assert max(sizes) <= m
    assert (0 in sizes) == (sample_rate < 0.05)  # an empty logical batch is a physical one
    expected = expected_physical_batches(num_documents, sample_rate, m)
    assert abs(counts.mean() - expected) <= 5 * counts.std() / math.sqrt(steps)
    assert counts.max() <= most_physical_batches(num_documents, sample_rate, m, steps, 1e-6)
    assert len(splitting) < len(sizes)  # what Opacus foresees
