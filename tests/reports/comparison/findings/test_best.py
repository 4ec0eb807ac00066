"""Which DP trainer is best at a place, and what that comes to over all of them."""

import pytest
from example_findings import BUSY, FAST, FLAT, GHOST, HERE, OOM, STANDARD, found, run, steps
from example_results import comparison, result

from dpprof.figures.names import PEAK, STEP
from dpprof.record.record import GradientCheck
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.findings.best import Ranking, Won, fastest_at, say
from dpprof.reports.comparison.places import Places


def ranking(of: Comparison, metric: str) -> Ranking | None:
    return next((one for one in found(of, Ranking) if one.metric == metric), None)


def winners(of: Comparison, metric: str) -> list[tuple[str, ...]]:
    one = ranking(of, metric)
    return [won.trainers for won in one.won] if one else []


def test_one_trainer_that_wins_everywhere_is_ranked_with_its_ratios_and_its_lead() -> None:
    of = comparison(run(STANDARD, 0.1, 10), run(FLAT, 0.2, 40), run(GHOST, 0.15, 11), run(FAST, 0.3, 30))
    time, memory = ranking(of, STEP), ranking(of, PEAK)
    assert time is not None
    assert memory is not None
    assert (time.winner, memory.winner) == (GHOST, GHOST)
    assert time.won == (Won((GHOST,), (HERE,)),)
    assert time.to_standard == pytest.approx([1.5])
    assert time.lead == pytest.approx([0.2 / 0.15])
    assert memory.to_standard == pytest.approx([1.1])
    assert memory.lead == pytest.approx([30 / 11])
    assert say(memory).text == (
        f"Of the DP trainers ghost needs the least memory at {HERE}, 1.10 x as much as standard. "
        "The next one needs 2.73 x as much."
    )


def test_places_where_too_few_finished_to_compare_are_not_counted() -> None:
    cells = [
        run(trainer, 0.1 * batch * more, 10 * batch * more, batch_size=batch)
        for batch in (2, 4)
        for trainer, more in ((FLAT, 1), (GHOST, 2))
    ]
    of = comparison(*cells, result(FLAT, failure=OOM, batch_size=8), run(GHOST, 0.8, 80, batch_size=8))
    time = ranking(of, STEP)
    assert time is not None
    assert (time.winner, len(time.places.names), time.places.is_every) == (FLAT, 2, False)
    assert not time.places.is_undisturbed
    assert (
        str(time.places)
        == "at all 2 places where several of them finished (tiny, batch 2 and 4, sequence 512)"
    )


def test_a_difference_within_the_spread_is_none() -> None:
    of = comparison(run(FLAT, steps(0.2, 0.1), 40), run(GHOST, steps(0.202, 0.1), 11))
    assert winners(of, STEP) == [(FLAT, GHOST)]
    time = ranking(of, STEP)
    assert time is not None
    assert (time.winner, time.lead) == (None, ())
    assert f"flat and ghost cannot be told apart at {HERE}." in say(time).text


def test_different_winners_are_listed_with_their_places() -> None:
    times = {2: (0.2, 0.3), 4: (0.4, 0.3), 8: (0.8, 0.9)}
    cells = [
        run(trainer, step_s, 10, batch_size=batch)
        for batch, pair in times.items()
        for trainer, step_s in zip((FLAT, GHOST), pair, strict=True)
    ]
    time = ranking(comparison(*cells), STEP)
    assert time is not None
    at = [f"tiny, batch {batch}, sequence 512" for batch in times]
    assert time.won == (Won((FLAT,), (at[0], at[2])), Won((GHOST,), (at[1],)))
    assert f"ghost takes the least time at 1 of 3 places ({at[1]})." in say(time).text


def test_a_single_step_tells_nothing_of_time() -> None:
    cells = [run(trainer, [0.1], peak) for trainer, peak in ((STANDARD, 9), (FLAT, 20), (GHOST, 11))]
    assert winners(comparison(*cells), STEP) == [()]


@pytest.mark.parametrize(("peak", "best"), [(100.05, (FLAT, GHOST)), (100.2, (FLAT,))])
def test_peaks_are_equal_only_if_next_to_nothing_lies_between_them(
    peak: float, best: tuple[str, ...]
) -> None:
    of = comparison(run(FLAT, 0.1, 100.0), run(GHOST, 0.2, peak))
    assert winners(of, PEAK) == [best]


def test_a_lead_of_next_to_nothing_is_not_told_as_none() -> None:
    memory = ranking(comparison(run(FLAT, 0.1, 100.2), run(GHOST, 0.2, 100.0)), PEAK)
    assert memory is not None
    assert say(memory).text.endswith("The next one needs 1.0020 x as much.")


def test_only_one_that_finished_is_not_the_fastest() -> None:
    place = comparison(run(FLAT, 0.1, 1), result(GHOST, failure=OOM)).places[0]
    assert fastest_at(place) is None


@pytest.mark.parametrize("repeats", [1, 3])
def test_single_runs_need_caution_and_repeated_ones_do_not(repeats: int) -> None:
    cells = [
        run(t, s, p, name=f"{t}{i}") for t, s, p in ((FLAT, 0.2, 9), (GHOST, 0.3, 8)) for i in range(repeats)
    ]
    time = ranking(comparison(*cells), STEP)
    assert time is not None
    assert time.is_of_single_runs is (repeats == 1)
    assert ("--repeats 3" in say(time).text) is (repeats == 1)


def test_a_disturbed_run_takes_the_award_of_its_place_away() -> None:
    of = comparison(run(STANDARD, 0.1, 10, **BUSY), run(FLAT, 0.2, 40), run(GHOST, 0.15, 11))
    assert fastest_at(of.places[0]) is None
    assert (winners(of, STEP), winners(of, PEAK)) == ([], [(GHOST,)])


def test_places_where_a_run_was_disturbed_are_left_out_of_the_ranking_by_time() -> None:
    cells = [
        run(trainer, step_s * batch, peak * batch, batch_size=batch, **(BUSY if batch == 8 else {}))
        for batch in (2, 4, 8)
        for trainer, step_s, peak in ((FLAT, 0.2, 40), (GHOST, 0.3, 11))
    ]
    time, memory = (ranking(comparison(*cells), metric) for metric in (STEP, PEAK))
    assert time is not None
    assert memory is not None
    assert (time.winner, memory.winner) == (FLAT, GHOST)
    assert (len(time.places.names), time.places.is_undisturbed) == (2, True)
    assert (
        str(time.places)
        == "at all 2 places where several of them finished undisturbed (tiny, batch 2 and 4, sequence 512)"
    )
    assert str(memory.places) == "at all 3 places (tiny, batch 2, 4 and 8, sequence 512)"


def test_disturbed_runs_of_a_cell_are_left_out_where_others_are_calm() -> None:
    """One of three runs was disturbed, and took ten times as long: neither its time nor its spread counts."""
    cells = [
        run(trainer, step_s * slower, 9, name=f"{trainer}{i}", **more)
        for trainer, step_s in ((FLAT, 0.2), (GHOST, 0.3))
        for i, slower, more in ((1, 1.0, {}), (2, 1.001, {}), (3, 10.0, BUSY))
    ]
    of = comparison(*cells)
    time = ranking(of, STEP)
    assert time is not None
    assert time.lead == pytest.approx([1.5])
    assert not time.is_of_single_runs
    assert [cell.figures[STEP] for cell in of.cells] == pytest.approx([200.1, 300.15])


def test_a_cell_whose_every_run_was_disturbed_is_called_nothing() -> None:
    cells = [
        run(trainer, step_s, 9, name=f"{trainer}{i}", **more)
        for trainer, step_s, more in ((FLAT, 0.2, BUSY), (GHOST, 0.3, {}))
        for i in (1, 2, 3)
    ]
    assert winners(comparison(*cells), STEP) == []


def test_a_trainer_whose_gradient_is_wrong_wins_nothing() -> None:
    wrong = run(FLAT, steps(0.1), 10, check=GradientCheck(fault="samples mix"))
    of = comparison(wrong, run(GHOST, steps(0.2), 20), run(FAST, steps(0.3), 30))
    assert winners(of, STEP) == winners(of, PEAK) == [(GHOST,)]


def test_a_single_place_is_told_by_its_name() -> None:
    assert str(Places((HERE,), is_every=False)) == f"at {HERE}"


def test_another_algorithm_is_best_only_among_its_own_kind() -> None:
    """It trains another model; where it is all that was run, its trainers are set against each other."""
    per_layer = run("DPPerLayerClippingTrainer", 0.1, 5)
    assert winners(comparison(per_layer, run(FLAT, 0.2, 40), run(GHOST, 0.3, 30)), STEP) == [(FLAT,)]
    assert winners(comparison(per_layer, run(FLAT, 0.2, 40)), PEAK) == []
    alike = comparison(run("DPBookKeepingTrainer", 0.1, 5), run("DPMixedGhostTrainer", 0.2, 4))
    for cell in alike.cells:
        cell.settings["clipping"] = "layer_wise"
    assert winners(alike, STEP) == [("DPBookKeepingTrainer",)]
    alike.cells[1].settings["clipping"] = "automatic"
    assert winners(alike, STEP) == []
