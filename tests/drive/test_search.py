"""The search against exhaustive search, on steps whose memory is known for every size."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpprof.drive.search import BytesByEvent, Evaluation, NoTime, fewest_that_fit, largest_that_fits

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


@given(LINES, st.integers(1, 40_000), st.booleans())
def test_a_step_linear_in_the_batch_is_found_in_eight_evaluations(
    lines: list[tuple[int, int]], limit: int, is_proven: bool
) -> None:
    """Peaks that move from one event to another as the batch grows, up to any size."""

    def levels_of(size: int) -> list[int]:
        return [fixed + slope * size for fixed, slope in lines]

    asked: list[int] = []
    evaluate = evaluating(levels_of, asked)
    found = largest_that_fits(evaluate, limit, starts=(2, 4), most=MOST, is_proven=is_proven)
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
    found = largest_that_fits(evaluating(levels_of, asked), limit, starts=starts, most=MOST)
    assert found.fits == exhaustive(levels_of, limit)
    assert len(asked) <= 8


@given(LINES, st.integers(1, 20_000), st.integers(1, 97))
def test_memory_in_blocks_is_found_all_the_same(lines: list[tuple[int, int]], limit: int, block: int) -> None:
    """Sizes rounded up are no polynomials: the answer stays exact, whatever was predicted."""

    def levels_of(size: int) -> list[int]:
        return [-(-(fixed + slope * size) // block) * block for fixed, slope in lines]

    asked: list[int] = []
    found = largest_that_fits(evaluating(levels_of, asked), limit, starts=(2, 4), most=MOST)
    assert found.fits == exhaustive(levels_of, limit)


@given(st.lists(st.integers(0, 50), min_size=30, max_size=30), st.integers(0, 800))
def test_any_rising_memory_is_searched_exactly(rises: list[int], limit: int) -> None:
    """Steps whose number of events differs with the size, so that only peaks can be predicted."""
    needed = np.cumsum([1, *rises]).tolist()

    def levels_of(size: int) -> list[int]:
        return [needed[size]] * size

    asked: list[int] = []
    found = largest_that_fits(evaluating(levels_of, asked), limit, starts=(2, 4), most=30)
    assert found.fits == exhaustive(levels_of, limit, 30)


def test_a_peak_on_a_line_is_predicted_though_events_grow_in_number() -> None:
    asked: list[int] = []
    found = largest_that_fits(
        evaluating(lambda size: [0] * size + [100 + 7 * size], asked),
        1000,
        starts=(2, 4),
        most=MOST,
    )
    assert (found.fits, asked) == (128, [2, 4, 128, 129])


@pytest.mark.parametrize(("limit", "size"), [(5, 0), (10, 1), (39, 3), (10**9, MOST)])
def test_nothing_fits_or_everything_does(limit: int, size: int) -> None:
    asked: list[int] = []
    evaluate = evaluating(lambda n: [10 * n], asked)
    found = largest_that_fits(evaluate, limit, starts=(2, 4), most=MOST)
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


def test_a_search_whose_steps_have_ever_more_events_stops_when_its_time_is_over() -> None:
    """A trainer that loops over samples: no two steps have the same events, and predictions go no farther
    than 32 times.
    """
    asked: list[int] = []
    evaluate = evaluating(lambda size: [7 * (event + 1) for event in range(size)], asked)
    found = largest_that_fits(evaluate, 70_000, starts=(2, 4), most=MOST, has_time=lambda: sum(asked) < 100)
    assert (asked, found.fits, found.is_open) == ([2, 4, 128], 128, True)


def test_events_that_only_small_sizes_share_do_not_end_a_search() -> None:
    """Small steps keep what large ones take in blocks, and so need more for each sample."""

    def levels_of(size: int) -> list[int]:
        return [10 * size] if size <= 4 else [0] * size + [100 + 5 * size]

    asked: list[int] = []
    found = largest_that_fits(evaluating(levels_of, asked), 1_000, starts=(2, 4), most=MOST, is_proven=False)
    assert (found.fits, found.is_open) == (180, False)
    assert len(asked) <= 6


def test_an_evaluation_without_time_ends_a_search_only_where_something_fits() -> None:
    def evaluate(size: int) -> Evaluation:
        if size > 3:
            raise NoTime
        return evaluating(lambda size: [size], [])(size)

    found = largest_that_fits(evaluate, 100, starts=(2, 4), most=MOST)
    assert (found.fits, found.is_open) == (2, True)
    with pytest.raises(NoTime):
        largest_that_fits(evaluate, 100, starts=(4, 8), most=MOST)


@pytest.mark.parametrize("is_proven", [True, False])
def test_a_step_of_another_form_than_the_first_is_found_in_few_evaluations(is_proven: bool) -> None:
    """Large sizes take the work in other pieces, and a little more memory than small ones would."""

    def levels_of(size: int) -> list[int]:
        return [100 + 10 * size] if size <= 4 else [0, 5000 + 10 * size]

    asked: list[int] = []
    found = largest_that_fits(
        evaluating(levels_of, asked), 90_000, starts=(2, 4), most=MOST, is_proven=is_proven
    )
    assert found.fits == exhaustive(levels_of, 90_000)
    assert len(asked) <= 6
