from example_findings import BUSY, FAST, FLAT, GHOST, STANDARD, run
from example_results import comparison

from dpprof.figures.names import PEAK, STEP
from dpprof.figures.results import Result
from dpprof.reports.comparison.marks import marks


def words(metric: str, *results: Result) -> list[str]:
    (place,) = comparison(*results).places
    return marks(place, metric)


def test_the_best_and_the_worst_dp_trainer_have_a_word_and_standard_training_none() -> None:
    four = (run(STANDARD, 0.1, 9.0), run(FLAT, 0.2, 4.0), run(GHOST, 0.4, 1.0), run(FAST, 0.3, 2.0))
    assert words(STEP, *four) == ["", "fastest", "slowest", ""]
    assert words(PEAK, *four) == ["", "most", "least", ""]


def test_what_cannot_be_told_apart_has_none() -> None:
    close = (run(FLAT, 0.2, 4.0), run(GHOST, 0.2005, 4.0), run(FAST, 0.1, 4.001))
    assert words(STEP, *close) == ["", "", "fastest"]
    assert words(PEAK, *close) == ["", "", ""]
    short = (run(FLAT, [0.2, 0.2], 4.0), run(GHOST, [0.4, 0.4], 8.0))
    assert words(STEP, *short) == ["", ""], "too few steps"
    assert words(PEAK, *short) == ["least", "most"]


def test_disturbed_places_and_lonely_trainers_have_none() -> None:
    assert words(STEP, run(FLAT, 0.2, 4.0, **BUSY), run(GHOST, 0.4, 1.0)) == ["", ""]
    assert words(STEP, run(STANDARD, 0.2, 4.0), run(GHOST, 0.4, 1.0)) == ["", ""]
