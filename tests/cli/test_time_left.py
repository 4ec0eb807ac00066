import pytest

from dpprof.cli.time_left import duration, left, seconds_left


def test_nothing_is_said_before_one_has_finished() -> None:
    assert seconds_left([], [5.0], 3, 1) is None


@pytest.mark.parametrize(
    ("finished", "running", "num_waiting", "at_a_time", "seconds"),
    [
        ([10.0, 20.0], [5.0], 2, 1, 10 + 2 * 15),
        ([10.0, 20.0], [40.0], 2, 1, 2 * 15),  # it takes longer than the others: no less than nothing
        ([10.0], [4.0, 8.0], 4, 2, (6 + 2 + 40) / 2),
        ([10.0], [4.0], 0, 2, 6),  # the last one runs alone
        ([10.0], [], 0, 1, 0),
    ],
)
def test_what_is_left_is_shared_by_those_that_run_together(
    finished: list[float], running: list[float], num_waiting: int, at_a_time: int, seconds: float
) -> None:
    assert seconds_left(finished, running, num_waiting, at_a_time) == seconds


def test_times_in_words() -> None:
    assert [duration(s) for s in (0.2, 59.4, 252, 3780)] == ["0 s", "59 s", "4 min 12 s", "1 h 3 min"]
    assert [left(s) for s in (20, 100, 3900)] == [
        "less than a minute left",
        "about 2 min left",
        "about 1 h 5 min left",
    ]
