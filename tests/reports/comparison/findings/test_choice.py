"""Which trainer to use."""

import pytest
from example_findings import BUSY, FAST, FLAT, GHOST, HERE, STANDARD, findings, found, run, steps
from example_results import comparison

from dpprof.figures.results import Result
from dpprof.reports.comparison.findings.choice import Choice
from dpprof.reports.comparison.places import Places

TINY = "tiny (1.23M parameters) on the CPU"


def grown(batches: tuple[int, ...], disturbed: tuple[int, ...] = ()) -> list[Result]:
    """FLAT is fast and large, GHOST slow and small."""
    return [
        run(trainer, step_s * batch, peak * batch, batch_size=batch, **(BUSY if batch in disturbed else {}))
        for batch in batches
        for trainer, step_s, peak in ((STANDARD, 0.1, 10), (FLAT, 0.2, 40), (GHOST, 0.3, 11))
    ]


def test_one_trainer_that_is_best_in_both_is_the_one_to_use() -> None:
    of = comparison(run(FLAT, 0.2, 40), run(GHOST, 0.15, 11), run(FAST, 0.3, 30))
    (finding,) = findings(of, Choice)
    assert finding.data == Choice(GHOST, GHOST, Places((HERE,)), subject=TINY)
    assert finding.text == (
        f"For {TINY}: train with ghost. Of the DP trainers it takes the least time and needs the least "
        f"memory at {HERE}."
    )


def test_time_and_memory_are_weighed_at_the_largest_place() -> None:
    (finding,) = findings(comparison(*grown((2, 4))), Choice)
    choice = finding.data
    assert (choice.fastest, choice.smallest) == (FLAT, GHOST)
    assert choice.trade is not None
    assert choice.trade.place == HERE
    shown = [choice.trade.fastest.step_ms, choice.trade.smallest.step_ms]
    assert shown == pytest.approx([800, 1200])
    assert (choice.trade.fastest.peak_mib, choice.trade.smallest.peak_mib) == (160, 44)
    assert "takes 800.0 ms and 160.0 MiB, and" in finding.text


def test_the_largest_place_is_one_that_was_not_disturbed() -> None:
    (choice,) = found(comparison(*grown((2, 4, 8), disturbed=(8,))), Choice)
    assert choice.trade is not None
    assert choice.trade.place == HERE


def test_the_smallest_is_to_use_where_none_is_faster_beyond_the_spread() -> None:
    of = comparison(run(FLAT, steps(0.2, 0.1), 40), run(GHOST, steps(0.202, 0.1), 11))
    assert found(of, Choice) == [Choice(None, GHOST, Places((HERE,)), subject=TINY)]


def test_nothing_is_chosen_where_the_fastest_differs_from_place_to_place() -> None:
    cells = [
        run(trainer, step_s, peak, batch_size=batch)
        for batch, times in ((2, (0.2, 0.3)), (4, (0.4, 0.3)))
        for trainer, step_s, peak in zip((FLAT, GHOST), times, (30, 11), strict=True)
    ]
    assert found(comparison(*cells), Choice) == []


def test_a_single_step_carries_no_choice() -> None:
    assert found(comparison(run(FLAT, [0.1], 20), run(GHOST, [0.1], 11)), Choice) == []


def test_small_times_and_sizes_are_told_with_their_digits() -> None:
    (finding,) = findings(comparison(run(FLAT, 0.00004, 0.003), run(GHOST, 0.00002, 0.005)), Choice)
    assert "takes 0.02 ms and 5.1 KiB" in finding.text
