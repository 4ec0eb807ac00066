"""The best DP trainer at a place, over all places, and the one to use."""

from typing import Any

import pytest
from example_findings import BUSY, FAST, FLAT, GHOST, HERE, OOM, STANDARD, findings, run, steps, told
from example_results import comparison, result

from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.verdict.best import Best, Recommended, fastest_at, marks, recommended, smallest_at
from dpprof.findings.verdict.verdict import verdict
from dpprof.record.figures.names import PEAK, STEP
from dpprof.record.figures.results import Result
from dpprof.record.record import GradientCheck


def won(best: Best | None) -> tuple[str, ...] | None:
    return best.trainers if best else None


def fastest(*results: Result) -> tuple[str, ...] | None:
    return won(fastest_at(comparison(*results).places[0]))


def smallest(*results: Result) -> tuple[str, ...] | None:
    return won(smallest_at(comparison(*results).places[0]))


def test_one_trainer_that_wins_everywhere_is_ranked_with_its_ratios_and_its_lead() -> None:
    of = comparison(run(STANDARD, 0.1, 10), run(FLAT, 0.2, 40), run(GHOST, 0.15, 11), run(FAST, 0.3, 30))
    for topic, first, lead in (("Time", "1.50 x", "1.33 x"), ("Memory", "1.10 x", "2.73 x")):
        best, next_one = told(of, topic).split(". The next one ")
        assert best.startswith("Of the DP trainers, ghost ")
        assert f"at {HERE}, {first} as " in best
        assert lead in next_one


def test_places_where_too_few_finished_to_compare_are_not_counted() -> None:
    cells = [
        run(trainer, 0.1 * batch * more, 10 * batch * more, batch_size=batch)
        for batch in (2, 4)
        for trainer, more in ((FLAT, 1), (GHOST, 2))
    ]
    of = comparison(*cells, result(FLAT, failure=OOM, batch_size=8), run(GHOST, 0.8, 80, batch_size=8))
    assert "flat takes the least time at both places " in told(of, "Time")
    assert "(tiny, batch 2 and 4, sequence 512)" in told(of, "Time")


def test_a_difference_within_the_spread_is_none() -> None:
    close = (run(FLAT, steps(0.2, 0.1), 40), run(GHOST, steps(0.202, 0.1), 11))
    assert fastest(*close) == (FLAT, GHOST)
    assert f"flat and ghost take the least time, and cannot be told apart at {HERE}." in told(
        comparison(*close), "Time"
    )
    assert "no other is clearly faster" in told(comparison(*close), "Use")


def test_different_winners_are_listed_with_their_places_and_none_is_chosen() -> None:
    times = {2: (0.2, 0.3), 4: (0.4, 0.3), 8: (0.8, 0.9)}
    cells = [
        run(trainer, step_s, peak, batch_size=batch)
        for batch, pair in times.items()
        for trainer, step_s, peak in zip((FLAT, GHOST), pair, (30, 11), strict=True)
    ]
    of = comparison(*cells)
    at = [f"tiny, batch {batch}, sequence 512" for batch in times]
    assert f"flat takes the least time at 2 of 3 places ({at[0]}; {at[2]});" in told(of, "Time")
    assert f"ghost takes the least time at 1 of 3 places ({at[1]})." in told(of, "Time")
    assert told(of, "Use") == ""


def test_a_single_step_tells_nothing_of_time() -> None:
    of = comparison(*(run(t, [0.1], peak) for t, peak in ((STANDARD, 9), (FLAT, 20), (GHOST, 11))))
    assert won(fastest_at(of.places[0])) == ()
    assert told(of, "Use") == ""


@pytest.mark.parametrize(("peak", "best"), [(100.05, (FLAT, GHOST)), (100.2, (FLAT,))])
def test_peaks_are_equal_only_if_next_to_nothing_lies_between_them(
    peak: float, best: tuple[str, ...]
) -> None:
    assert smallest(run(FLAT, 0.1, 100.0), run(GHOST, 0.2, peak)) == best


def test_small_differences_and_figures_are_told_with_their_digits() -> None:
    assert told(comparison(run(FLAT, 0.1, 100.2), run(GHOST, 0.2, 100.0)), "Memory").endswith(
        "1.0020 x as much."
    )
    said = told(comparison(run(FLAT, 0.00004, 0.003), run(GHOST, 0.00002, 0.005)), "Use")
    assert "takes 0.02 ms and 5.1 KiB" in said


@pytest.mark.parametrize("repeats", [1, 3])
def test_single_runs_need_caution_and_repeated_ones_do_not(repeats: int) -> None:
    cells = [
        run(t, s, p, name=f"{t}{i}") for t, s, p in ((FLAT, 0.2, 9), (GHOST, 0.3, 8)) for i in range(repeats)
    ]
    assert ("--repeats 3" in told(comparison(*cells), "Time")) is (repeats == 1)


def test_places_where_a_run_was_disturbed_are_left_out_of_the_ranking_by_time() -> None:
    cells = [
        run(trainer, step_s * batch, peak * batch, batch_size=batch, **(BUSY if batch == 8 else {}))
        for batch in (2, 4, 8)
        for trainer, step_s, peak in ((FLAT, 0.2, 40), (GHOST, 0.3, 11))
    ]
    of = comparison(*cells)
    assert "flat takes the least time at both places " in told(of, "Time")
    assert "undisturbed (tiny, batch 2 and 4," in told(of, "Time")
    assert "ghost needs the least memory at all 3 places (" in told(of, "Memory")
    assert "(tiny, batch 2, 4 and 8," in told(of, "Memory")


def test_disturbed_runs_of_a_cell_are_left_out_where_others_are_calm() -> None:
    """One of three runs was disturbed, and took ten times as long: neither its time nor its spread counts."""
    times = ((FLAT, 0.2), (GHOST, 0.3))
    repeated: list[tuple[int, float, dict[str, Any]]] = [(1, 1.0, {}), (2, 1.001, {}), (3, 10.0, BUSY)]
    of = comparison(
        *(run(t, s * slower, 9, name=f"{t}{i}", **more) for t, s in times for i, slower, more in repeated)
    )
    assert "The next one takes 1.50 x as long." in told(of, "Time")
    assert [cell.figures[STEP] for cell in of.cells] == pytest.approx([200.1, 300.15])
    all_busy = [run(t, s, 9, name=f"{t}{i}", **BUSY) for t, s in times[:1] for i in (1, 2, 3)]
    assert fastest(*all_busy, run(GHOST, 0.3, 9)) is None


def test_a_trainer_whose_gradient_is_wrong_wins_nothing() -> None:
    wrong = run(FLAT, steps(0.1), 10, check=GradientCheck(fault="samples mix"))
    runs = wrong, run(GHOST, steps(0.2), 20), run(FAST, steps(0.3), 30)
    assert fastest(*runs) == smallest(*runs) == (GHOST,)


@pytest.mark.usefixtures("limited")
def test_another_algorithm_is_best_only_among_its_own_kind() -> None:
    """It trains another model; where it is all that was run, its trainers are set against each other."""
    other = run("LimitedTrainer", 0.1, 5)
    assert fastest(other, run(FLAT, 0.2, 40), run(GHOST, 0.3, 30)) == (FLAT,)
    assert smallest(other, run(FLAT, 0.2, 40)) is None
    alike = comparison(run("DPBookKeepingTrainer", 0.1, 5), run("DPMixedGhostTrainer", 0.2, 4))
    for cell in alike.cells:
        cell.settings["clipping"] = "layer_wise"
    assert won(fastest_at(alike.places[0])) == ("DPBookKeepingTrainer",)
    alike.cells[1].settings["clipping"] = "automatic"
    assert fastest_at(alike.places[0]) is None


def grown(
    batches: tuple[int, ...], disturbed: tuple[int, ...] = (), slower: tuple[int, ...] = ()
) -> list[Result]:
    """FLAT is fast and large, GHOST slow and small; at the batches of `slower` FLAT is not fast."""
    return [
        run(trainer, step_s * batch, peak * batch, batch_size=batch, **(BUSY if batch in disturbed else {}))
        for batch in batches
        for trainer, step_s, peak in (
            (STANDARD, 0.1, 10),
            (FLAT, 0.4 if batch in slower else 0.2, 40),
            (GHOST, 0.3, 11),
        )
    ]


def test_one_trainer_that_is_best_in_both_is_the_one_to_use() -> None:
    of = comparison(run(FLAT, 0.2, 40), run(GHOST, 0.15, 11), run(FAST, 0.3, 30))
    (finding,) = findings(of, "Use")
    assert finding.trainer == GHOST
    assert finding.text.startswith("For tiny (1.23M parameters) on the CPU: train with ghost. ")
    assert finding.text.endswith(f"least memory at {HERE}.")


@pytest.mark.parametrize("batches", [(2, 4), (2, 4, 8)])
def test_time_and_memory_are_weighed_at_the_largest_place_that_was_not_disturbed(
    batches: tuple[int, ...],
) -> None:
    (finding,) = findings(comparison(*grown(batches, disturbed=(8,))), "Use")
    assert finding.trainer == FLAT
    assert f"At {HERE}, flat takes 800.0 ms and 160.0 MiB" in finding.text
    assert "ghost 1,200.0 ms and 44.0 MiB." in finding.text


def recommended_of(*results: Result) -> Recommended:
    of: Comparison = comparison(*results)
    found = recommended(of, verdict(of))
    assert found is not None
    return found


def test_it_is_the_fastest_of_the_choice_at_the_largest_place() -> None:
    found = recommended_of(*grown((2, 4)))
    assert found.trainer == FLAT
    assert "batch 4" in found.place
    assert found.figures == {
        "best/peak_allocated_mib": 160,
        "best/step_ms_median": 800,
        "best/samples_per_s": 5,
        "best/peak_allocated_ratio": 4,
        "best/step_ms_ratio": 2,
    }
    assert recommended_of(*grown((2, 4), slower=(4,))).trainer == GHOST, "without a choice the smallest"
    assert recommended(comparison(run(STANDARD, 0.1, 10)), []) is None


def test_a_disturbed_place_counts_only_where_there_is_no_other() -> None:
    assert "batch 2" in recommended_of(*grown((2, 4), disturbed=(4,))).place
    alone = recommended_of(*grown((4,), disturbed=(4,)))
    assert "best/step_ms_ratio" not in alone.figures
    assert alone.figures["best/peak_allocated_ratio"] == 1.1


def words(metric: str, *results: Result) -> list[str]:
    (place,) = comparison(*results).places
    return marks(place, metric)


def test_the_best_and_the_worst_dp_trainer_have_a_word_and_standard_training_none() -> None:
    four = (run(STANDARD, 0.1, 9.0), run(FLAT, 0.2, 4.0), run(GHOST, 0.4, 1.0), run(FAST, 0.3, 2.0))
    assert words(STEP, *four) == ["", "fastest", "slowest", ""]
    assert words(PEAK, *four) == ["", "most", "least", ""]


def test_what_cannot_be_told_apart_has_no_word() -> None:
    close = (run(FLAT, 0.2, 4.0), run(GHOST, 0.2005, 4.0), run(FAST, 0.1, 4.001))
    assert words(STEP, *close) == ["", "", "fastest"]
    assert words(PEAK, *close) == ["", "", ""]
    short = (run(FLAT, [0.2, 0.2], 4.0), run(GHOST, [0.4, 0.4], 8.0))
    assert words(STEP, *short) == ["", ""], "too few steps"
    assert words(PEAK, *short) == ["least", "most"]
