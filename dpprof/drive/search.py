"""Finds the largest size whose training step fits a memory, from few evaluations of the step.

The bytes alive after each event of a step are a polynomial of the size: of first degree in the batch, of
second in the sequence. So a few evaluations give them for every size, and with them the peak, wherever in
the step it moves as the size grows. Each prediction is then evaluated: the answer rests on
evaluations alone, and only their number depends on the predictions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

BytesByEvent = NDArray[np.float64]
# Numbers of ranks that are tried where a prediction says, before the range is halved.
_PREDICTED = 6


@dataclass(frozen=True)
class Evaluation:
    """A step of some size: the bytes that it needs, and those that it needs after each of its events."""

    size: int
    needed: int
    levels: BytesByEvent


@dataclass
class Search:
    """How far a search has come: `fits` is the largest size known to fit (0: none), `too_large` the smallest
    known not to.
    """

    limit: int
    evaluations: dict[int, Evaluation] = field(default_factory=dict)
    fits: int = 0
    too_large: int | None = None

    def add(self, evaluation: Evaluation) -> None:
        """Record an evaluation."""
        self.evaluations[evaluation.size] = evaluation
        if evaluation.needed <= self.limit:
            self.fits = max(self.fits, evaluation.size)
        elif self.too_large is None or evaluation.size < self.too_large:
            self.too_large = evaluation.size

    @property
    def is_open(self) -> bool:
        """Whether nothing was found that does not fit, so that more than `fits` may."""
        return self.too_large is None

    def is_over(self, most: int) -> bool:
        """Whether the answer is known: the next size does not fit, or is not asked for."""
        return self.fits >= most or self.too_large == self.fits + 1

    def predict(self, limit: int, degree: int, most: int) -> int | None:
        """The largest size that should need no more than `limit` bytes, from the `degree` + 1 largest
        evaluations whose steps have the same events; None if there are not so many.
        """
        by_size = [self.evaluations[size] for size in sorted(self.evaluations, reverse=True)]
        for first in by_size:
            alike = [one for one in by_size if len(one.levels) == len(first.levels)]
            if len(alike) > degree:
                known = alike[: degree + 1]
                break
        else:
            return None
        low, high = 0, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            if _interpolated(known, middle) <= limit:
                low = middle
            else:
                high = middle
        return low


def largest_that_fits(
    evaluate: Callable[[int], Evaluation],
    limit: int,
    *,
    degree: int,
    starts: tuple[int, ...],
    most: int,
    is_proven: bool = True,
) -> Search:
    """Find the largest size up to `most` that needs no more than `limit` bytes.

    `starts` are the sizes evaluated first, rising, one more than the `degree` of the polynomials. A larger
    size is taken to need no less memory. Without `is_proven` an answer that was predicted, and evaluated to
    fit, is taken for the largest: the next size is not evaluated.
    """
    search = Search(limit)
    for size in starts:
        if search.too_large is None and size <= most:
            search.add(evaluate(size))
    while not search.is_over(most):
        if not is_proven and search.fits and search.predict(limit, degree, most) == search.fits:
            break
        search.add(evaluate(_next(search, degree, most)))
    return search


def fewest_that_fit(evaluate: Callable[[int], Evaluation], limit: int, *, most: int) -> int:
    """Find the smallest number of ranks, up to `most`, each of which needs no more than `limit` bytes; 0 if
    there is none.

    More ranks are taken to need no more memory each. What a rank needs is about a + b / N, from which the
    number to try next follows; where that does not help, the range is divided.
    """
    needed: dict[int, int] = {}
    few, many = 0, 0
    while many - few != 1:
        if not few:
            number = 1
        elif not many:
            number = min(max(2 * few, _ranks_for(limit, needed) or 0), most)
        else:
            predicted = _ranks_for(limit, needed) if len(needed) <= _PREDICTED else None
            number = min(max(predicted or math.isqrt(few * many), few + 1), many - 1)
        needed[number] = evaluate(number).needed
        if needed[number] <= limit:
            many = number
        elif number == most:
            return 0
        else:
            few = number
    return many


def _ranks_for(limit: int, needed: dict[int, int]) -> int | None:
    """The number of ranks that should need `limit` bytes, by the two largest numbers with what they need."""
    if len(needed) < 2:
        return None
    (few, few_need), (many, many_need) = sorted(needed.items())[-2:]
    slope = (few_need - many_need) / (1 / few - 1 / many)
    room = limit - (many_need - slope / many)
    return math.ceil(slope / room) if slope > 0 and room > 0 else None


def _next(search: Search, degree: int, most: int) -> int:
    """The size to evaluate next: the predicted answer, or the one beyond if that is known to fit.

    From the sixth evaluation on the open range is halved: something in the step is no such polynomial.
    """
    low, high = search.fits + 1, most if search.too_large is None else search.too_large - 1
    predicted = None
    if len(search.evaluations) < 6 or search.too_large is None:
        predicted = search.predict(search.limit, degree, most)
    if predicted is None:
        predicted = (low + high) // 2 if search.too_large is not None else min(2 * low, most)
    return min(max(predicted, low), high)


def _interpolated(known: list[Evaluation], size: int) -> float:
    """The bytes that a size should need: the highest of the polynomials through known levels (Lagrange)."""
    total = np.zeros_like(known[0].levels)
    for one in known:
        weight = 1.0
        for other in known:
            if other is not one:
                weight *= (size - other.size) / (one.size - other.size)
        total += weight * one.levels
    return float(total.max())
