"""The trainer whose figures a sweep's run in MLflow has."""

from example_findings import BUSY, FLAT, GHOST, STANDARD, run
from example_results import comparison

from dpprof.figures.results import Result
from dpprof.reports.comparison.findings.verdict import verdict
from dpprof.reports.comparison.recommended import Recommended, recommended


def recommended_of(*results: Result) -> Recommended | None:
    of = comparison(*results)
    return recommended(of, verdict(of))


def grown(batch: int, *, flat_s: float = 0.2, is_busy: bool = False) -> list[Result]:
    """FLAT is fast and large, GHOST slow and small."""
    more = BUSY if is_busy else {}
    shown = ((STANDARD, 0.1, 10), (FLAT, flat_s, 40), (GHOST, 0.3, 11))
    return [run(trainer, s * batch, peak * batch, batch_size=batch, **more) for trainer, s, peak in shown]


def test_it_is_the_fastest_of_the_choice_at_the_largest_place() -> None:
    found = recommended_of(*grown(2), *grown(4))
    assert found is not None
    assert found.trainer == FLAT
    assert "batch 4" in found.place
    assert found.figures == {
        "best/peak_allocated_mib": 160,
        "best/step_ms_median": 800,
        "best/samples_per_s": 5,
        "best/peak_allocated_ratio": 4,
        "best/step_ms_ratio": 2,
    }


def test_without_a_choice_it_is_the_smallest() -> None:
    found = recommended_of(*grown(2), *grown(4, flat_s=0.4))
    assert found is not None
    assert found.trainer == GHOST


def test_a_disturbed_place_counts_only_where_there_is_no_other() -> None:
    found = recommended_of(*grown(2), *grown(4, is_busy=True))
    assert found is not None
    assert "batch 2" in found.place
    alone = recommended_of(*grown(4, is_busy=True))
    assert alone is not None
    assert "best/step_ms_ratio" not in alone.figures
    assert alone.figures["best/peak_allocated_ratio"] == 1.1


def test_nothing_is_recommended_without_a_dp_trainer() -> None:
    assert recommended_of(run(STANDARD, 0.1, 10)) is None
