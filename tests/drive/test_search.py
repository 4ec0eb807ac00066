"""The search against exhaustive search, on steps whose memory is known for every size."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpprof.drive.search import BytesByEvent, Evaluation, NoTime, Search, fewest_that_fit, largest_that_fits

MOST = 10_000
EVENTS = st.tuples(st.integers(0, 10_000), st.integers(0, 300), st.integers(0, 5))
Levels = Callable[[int], list[int]]


def evaluating(levels_of: Levels, asked: list[int]) -> Callable[[int], Evaluation]:
    def evaluate(size: int) -> Evaluation:
        assert size not in asked, "no size is asked for twice"
        asked.append(size)
        levels: BytesByEvent = np.array(levels_of(size), dtype=float)
        return Evaluation(size, max(levels_of(size)), levels)

    return evaluate


def searched(levels_of: Levels, limit: int, **how: Any) -> tuple[Search, list[int]]:
    """The search, and the sizes that it asked for, none of them twice."""
    asked: list[int] = []
    given: dict[str, Any] = {"starts": (2, 4), "most": MOST} | how
    return largest_that_fits(evaluating(levels_of, asked), limit, **given), asked


def exhaustive(levels_of: Levels, limit: int, most: int = MOST) -> int:
    return max((size for size in range(1, most + 1) if max(levels_of(size)) <= limit), default=0)


@pytest.mark.parametrize(
    ("degree", "starts", "most_bytes"), [(1, (2, 4), 40_000), (2, (16, 32, 48), 400_000)]
)
@given(st.data())
def test_a_polynomial_step_is_found_in_eight_evaluations(
    degree: int, starts: tuple[int, ...], most_bytes: int, data: st.DataObject
) -> None:
    """Peaks that move from one event to another as the batch or the sequence grows, up to any size."""
    events = data.draw(st.lists(EVENTS, min_size=1, max_size=6))
    limit, is_proven = data.draw(st.integers(1, most_bytes)), data.draw(st.booleans())

    def levels_of(size: int) -> list[int]:
        return [fixed + slope * size + (degree - 1) * bend * size**2 for fixed, slope, bend in events]

    found, asked = searched(levels_of, limit, starts=starts, is_proven=is_proven)
    assert found.fits == exhaustive(levels_of, limit)
    assert len(asked) <= 8


@given(st.lists(EVENTS, min_size=1, max_size=6), st.integers(1, 20_000), st.integers(1, 97))
def test_memory_in_blocks_is_found_all_the_same(
    events: list[tuple[int, int, int]], limit: int, block: int
) -> None:
    """Sizes rounded up are no polynomials: the answer stays exact, whatever was predicted."""

    def levels_of(size: int) -> list[int]:
        return [-(-(fixed + slope * size) // block) * block for fixed, slope, _ in events]

    assert searched(levels_of, limit)[0].fits == exhaustive(levels_of, limit)


@given(st.lists(st.integers(0, 50), min_size=30, max_size=30), st.integers(0, 800))
def test_any_rising_memory_is_searched_exactly(rises: list[int], limit: int) -> None:
    """Steps whose number of events differs with the size, so that only peaks can be predicted."""
    needed = np.cumsum([1, *rises]).tolist()

    def levels_of(size: int) -> list[int]:
        return [needed[size]] * size

    assert searched(levels_of, limit, most=30)[0].fits == exhaustive(levels_of, limit, 30)


@given(st.lists(EVENTS, min_size=1, max_size=6), st.integers(1, 40_000), st.booleans())
@example([(8646, 109, 0)], 8646 + 24 * 109, False)  # 24/13 * 10063 - 11/13 * 8646 is above, in floats
def test_a_single_evaluation_predicts_where_it_tells_what_grows(
    events: list[tuple[int, int, int]], limit: int, is_proven: bool
) -> None:
    """With what is fixed in each event, the second evaluation is that of the answer, up to 32 times."""
    asked: list[int] = []

    def evaluate(size: int) -> Evaluation:
        asked.append(size)
        levels: BytesByEvent = np.array([fixed + slope * size for fixed, slope, _ in events], dtype=float)
        return Evaluation(size, int(levels.max()), levels, np.array([fixed for fixed, *_ in events], float))

    found = largest_that_fits(evaluate, limit, starts=(13, 26), most=MOST, is_proven=is_proven)
    expected = exhaustive(lambda size: [fixed + slope * size for fixed, slope, _ in events], limit)
    assert found.fits == expected
    assert len(asked) <= (3 if expected <= 32 * 13 else 4)


def test_a_peak_on_a_line_is_predicted_though_events_grow_in_number() -> None:
    found, asked = searched(lambda size: [0] * size + [100 + 7 * size], 1000)
    assert (found.fits, asked) == (128, [2, 4, 128, 129])


@pytest.mark.parametrize(("limit", "size"), [(5, 0), (10, 1), (39, 3), (10**9, MOST)])
def test_nothing_fits_or_everything_does(limit: int, size: int) -> None:
    found, asked = searched(lambda n: [10 * n], limit)
    assert (found.fits, found.is_open) == (size, size == MOST)
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

    found, asked = searched(levels_of, 1_000, is_proven=False)
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

    found, asked = searched(levels_of, 90_000, is_proven=is_proven)
    assert found.fits == exhaustive(levels_of, 90_000)
    assert len(asked) <= 6
