"""The search against exhaustive search, on steps whose memory is known for every size."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpprof.drive.search import BytesByEvent, Evaluation, fewest_that_fit, largest_that_fits

MOST = 10_000
LINES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 300)), min_size=1, max_size=6)
CURVES = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 300), st.integers(0, 5)), min_size=1, max_size=6
)


def evaluating(levels_of: Callable[[int], list[int]], asked: list[int]) -> Callable[[int], Evaluation]:
    def evaluate(size: int) -> Evaluation:
        asked.append(size)
        levels: BytesByEvent = np.array(levels_of(size), dtype=float)
        return Evaluation(size, max(levels_of(size)), levels)

    return evaluate


def exhaustive(levels_of: Callable[[int], list[int]], limit: int, most: int = MOST) -> int:
    return max((size for size in range(1, most + 1) if max(levels_of(size)) <= limit), default=0)


@given(LINES, st.integers(1, 40_000))
def test_a_step_linear_in_the_batch_is_found_in_eight_evaluations(
    lines: list[tuple[int, int]], limit: int
) -> None:
    """Peaks that move from one event to another as the batch grows, up to any size."""

    def levels_of(size: int) -> list[int]:
        return [fixed + slope * size for fixed, slope in lines]

    asked: list[int] = []
    found = largest_that_fits(evaluating(levels_of, asked), limit, degree=1, starts=(2, 4), most=MOST)
    assert found.fits == exhaustive(levels_of, limit)
    assert len(asked) == len(set(asked)) <= 8


@given(CURVES, st.integers(1, 400_000))
def test_a_step_quadratic_in_the_sequence_is_found_in_eight_evaluations(
    curves: list[tuple[int, int, int]], limit: int
) -> None:
    def levels_of(size: int) -> list[int]:
        return [fixed + slope * size + bend * size**2 for fixed, slope, bend in curves]

    asked: list[int] = []
    starts = (16, 32, 48)
    found = largest_that_fits(evaluating(levels_of, asked), limit, degree=2, starts=starts, most=MOST)
    assert found.fits == exhaustive(levels_of, limit)
    assert len(asked) <= 8


@given(LINES, st.integers(1, 20_000), st.integers(1, 97))
def test_memory_in_blocks_is_found_all_the_same(lines: list[tuple[int, int]], limit: int, block: int) -> None:
    """Sizes rounded up are no polynomials: the answer stays exact, whatever was predicted."""

    def levels_of(size: int) -> list[int]:
        return [-(-(fixed + slope * size) // block) * block for fixed, slope in lines]

    asked: list[int] = []
    found = largest_that_fits(evaluating(levels_of, asked), limit, degree=1, starts=(2, 4), most=MOST)
    assert found.fits == exhaustive(levels_of, limit)


@given(st.lists(st.integers(0, 50), min_size=30, max_size=30), st.integers(0, 800))
def test_any_rising_memory_is_searched_exactly(rises: list[int], limit: int) -> None:
    """Steps whose number of events differs with the size, so that nothing can be predicted."""
    needed = np.cumsum([1, *rises]).tolist()

    def levels_of(size: int) -> list[int]:
        return [needed[size]] * size

    asked: list[int] = []
    found = largest_that_fits(evaluating(levels_of, asked), limit, degree=1, starts=(2, 4), most=30)
    assert found.fits == exhaustive(levels_of, limit, 30)


@pytest.mark.parametrize(("limit", "size"), [(5, 0), (10, 1), (39, 3), (10**9, MOST)])
def test_nothing_fits_or_everything_does(limit: int, size: int) -> None:
    asked: list[int] = []
    evaluate = evaluating(lambda n: [10 * n], asked)
    found = largest_that_fits(evaluate, limit, degree=1, starts=(2, 4), most=MOST)
    assert found.fits == size
    assert found.is_open == (size == MOST)
    assert len(asked) <= 4


@given(st.integers(0, 3_000), st.integers(0, 50_000), st.integers(1, 64), st.integers(1, 6_000))
def test_the_fewest_ranks_are_found_in_few_evaluations(
    fixed: int, shared: int, block: int, limit: int
) -> None:
    """What a rank needs is a part of its own and a share of the rest, in whole blocks."""

    def levels_of(ranks: int) -> list[int]:
        return [fixed + -(-shared // (ranks * block)) * block]

    asked: list[int] = []
    found = fewest_that_fit(evaluating(levels_of, asked), limit, most=1024)
    enough = (ranks for ranks in range(1, 1025) if levels_of(ranks)[0] <= limit)
    assert found == next(enough, 0)
    assert len(asked) == len(set(asked)) <= 24


@given(LINES, st.integers(1, 40_000))
def test_an_answer_that_is_not_to_be_proven_is_the_same_with_fewer_evaluations(
    lines: list[tuple[int, int]], limit: int
) -> None:
    def levels_of(size: int) -> list[int]:
        return [fixed + slope * size for fixed, slope in lines]

    asked: list[int] = []
    evaluate = evaluating(levels_of, asked)
    found = largest_that_fits(evaluate, limit, degree=1, starts=(2, 4), most=MOST, is_proven=False)
    assert found.fits == exhaustive(levels_of, limit)
    assert len(asked) <= 8
