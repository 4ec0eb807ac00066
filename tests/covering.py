"""Parameters of tests: a whole product of factors, of which the default run takes a covering sample."""

import itertools
from collections.abc import Collection, Sequence
from typing import Any

import pytest


def product(*factors: Collection[Any], always: Collection[tuple[Any, ...]] = ()) -> list[Any]:
    """Every combination, and `always`. Those that together have each value of each factor run by default, as
    `always` do; the others are exhaustive.
    """
    lists = [list(factor) for factor in factors]
    longest = max(map(len, lists))
    sample = [tuple(values[i % len(values)] for values in lists) for i in range(longest)]
    whole = list(itertools.product(*lists))
    return sampled([*whole, *(case for case in always if case not in whole)], [*sample, *always])


def sampled(cases: Sequence[tuple[Any, ...]], sample: Collection[tuple[Any, ...]]) -> list[Any]:
    """Cases, of which those not in a sample are exhaustive."""
    return [pytest.param(*case, marks=() if case in sample else pytest.mark.exhaustive) for case in cases]
