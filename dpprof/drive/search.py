"""Finds the largest size whose training step fits a memory, from few evaluations of the step.

The bytes alive after each event of a step are a polynomial of the size: of first degree in the batch, of
second in the sequence. So a few evaluations predict the peak of every size, wherever in the step it is: of a
batch one, where shapes tell what grows. Each prediction is then evaluated, so that the answer rests on
evaluations alone.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

BytesByEvent = NDArray[np.float64]
# Numbers of ranks tried by prediction before the range is halved.
_PREDICTED = 6
# Where no two steps have the same events, the next size is at most this multiple of the largest that fits.
_TRUSTED = 32


class NoTime(Exception):
    """No time is left for another evaluation."""


@dataclass(frozen=True)
class Evaluation:
    """Bytes that a step of some size needs, at its peak and after each of its events.

    `fixed` are those of them that do not grow, as far as that is known: the step of size 0.
    """

    size: int
    needed: int
    levels: BytesByEvent
    fixed: BytesByEvent | None = None


@dataclass
class Search:
    """State of a search up to size `most`, where bytes are a polynomial of this degree.

    `fits` is the largest size known to fit (0: none), `too_large` the smallest not to. `is_stopped` means
    that time ran out, `is_predicted` that `fits` is the largest only by prediction.
    """

    limit: int
    degree: int
    most: int
    evaluations: dict[int, Evaluation] = field(default_factory=dict)
    fits: int = 0
    too_large: int | None = None
    is_stopped: bool = False
    is_predicted: bool = False

    def add(self, evaluation: Evaluation) -> None:
        """Record an evaluation."""
        self.evaluations[evaluation.size] = evaluation
        if evaluation.needed <= self.limit:
            self.fits = max(self.fits, evaluation.size)
        elif self.too_large is None or evaluation.size < self.too_large:
            self.too_large = evaluation.size

    @property
    def is_open(self) -> bool:
        """True if the search ended where more than `fits` may fit."""
        return self.is_stopped or (self.too_large is None and not self.is_predicted)

    @property
    def is_over(self) -> bool:
        """True if the answer is known: the next size does not fit, or is beyond `most`."""
        return self.fits >= self.most or self.too_large == self.fits + 1

    def predict(self, limit: int) -> int | None:
        """Predict the largest size that needs at most `limit` bytes; None with too few evaluations.

        Uses the `degree` + 1 largest evaluations with the same events, else the peaks of the largest ones.
        """
        known = self._alike or [
            Evaluation(one.size, one.needed, np.array([float(one.needed)])) for one in self._by_size
        ]
        if len(known) <= self.degree:
            return None
        needed = partial(_interpolated, known[: self.degree + 1])
        return bisect_right(range(self.most + 1), float(limit), lo=1, key=needed) - 1

    @property
    def next_size(self) -> int:
        """The next size to evaluate: the predicted answer, or the next one if that is known to fit.

        A prediction that an evaluation has refuted gives way to the line between the nearest evaluations.
        From the sixth on, every other one halves the open range: something in the step is not polynomial.
        """
        low, high = self.fits + 1, self.most if self.too_large is None else self.too_large - 1
        predicted = None
        if len(self.evaluations) < 6 or len(self.evaluations) % 2 or self.too_large is None:
            predicted = self.predict(self.limit)
        if predicted is not None and predicted > high and self.fits and self.too_large is not None:
            fits, beyond = self.evaluations[self.fits], self.evaluations[self.too_large]
            share = (self.limit - fits.needed) / (beyond.needed - fits.needed)
            predicted = int(fits.size + share * (beyond.size - fits.size))
        if predicted is None:
            predicted = (low + high) // 2 if self.too_large is not None else 2 * low
        elif self._alike is None or len(self.evaluations) == 1:
            predicted = min(predicted, _TRUSTED * max(self.fits, 1))
        return min(max(predicted, low), high)

    @property
    def _by_size(self) -> list[Evaluation]:
        found = [self.evaluations[size] for size in sorted(self.evaluations, reverse=True)]
        if len(found) == 1 and found[0].fixed is not None:
            found.append(Evaluation(0, 0, found[0].fixed))
        return found

    @property
    def _alike(self) -> list[Evaluation] | None:
        """Evaluations with the same events, largest first, with that of `fits`; None if too few."""
        by_size = self._by_size
        for first in by_size:
            alike = [one for one in by_size if len(one.levels) == len(first.levels)]
            if len(alike) > self.degree and (not self.fits or self.evaluations[self.fits] in alike):
                return alike
        return None


def largest_that_fits(
    evaluate: Callable[[int], Evaluation],
    limit: int,
    *,
    starts: tuple[int, ...],
    most: int,
    is_proven: bool = True,
    has_time: Callable[[], bool] = lambda: True,
) -> Search:
    """Find the largest size up to `most` that needs at most `limit` bytes.

    `starts` are the first sizes, ascending, one more than the polynomials' degree, as far as nothing is
    predicted before. Memory is assumed not to fall with size. Without `is_proven`, a predicted answer that
    fits is accepted without evaluating the next size. Without time left, the search stops at the size that
    fits so far; NoTime if there is none.
    """
    search = Search(limit, len(starts) - 1, most)
    try:
        for size in starts:
            if search.too_large is None and size <= most and search.predict(limit) is None:
                search.add(evaluate(size))
        while not search.is_over:
            is_line = not is_proven and search.fits and len(search.evaluations) > search.degree
            if is_line and search.predict(limit) == search.fits:
                search.is_predicted = True
                break
            if search.fits and not has_time():
                raise NoTime
            search.add(evaluate(search.next_size))
    except NoTime:
        if not search.fits:
            raise
        search.is_stopped = True
    return search


def fewest_that_fit(evaluate: Callable[[int], Evaluation], limit: int, *, most: int) -> int:
    """Find the fewest ranks, up to `most`, that need at most `limit` bytes each; 0 if there are none.

    A rank needs about a + b / N bytes, which predicts the next number; where that does not help, halve the
    range.
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
    """Predict the ranks that need `limit` bytes each, from the two largest evaluated numbers."""
    if len(needed) < 2:
        return None
    (few, few_need), (many, many_need) = sorted(needed.items())[-2:]
    slope = (few_need - many_need) / (1 / few - 1 / many)
    room = limit - (many_need - slope / many)
    return math.ceil(slope / room) if slope > 0 and room > 0 else None


def _interpolated(known: list[Evaluation], size: int) -> float:
    """Return the bytes that a size should need: the highest of the interpolating polynomials (Lagrange)."""
    total = np.zeros_like(known[0].levels)
    for one in known:
        others = (other.size for other in known if other is not one)
        total += math.prod((size - other) / (one.size - other) for other in others) * one.levels
    return round(float(total.max()), 3)  # without the last digits of sums, which may exceed whole bytes
