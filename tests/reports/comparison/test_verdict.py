from collections.abc import Sequence

import pytest
from example_results import comparison, result

from dpprof.figures.results import Result
from dpprof.record.record import Failure, GradientCheck
from dpprof.reports.comparison.cells import Comparison
from dpprof.reports.comparison.verdict import fastest_at, fold_backward, parts_of_difference, verdict

FLAT, GHOST, FAST = "DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer"
OOM = Failure("oom", "no memory")
MACHINE = {"memory_gib": "1.0"}
ONCE = " Each was measured in one run; --repeats 3 would show how much runs differ."


def steps(around: float, spread: float = 0.01) -> list[float]:
    return [around * (1 + spread * k) for k in (-2, -1, -1, 0, 0, 0, 1, 1, 2)]


def run(trainer: str, step_s: float | Sequence[float], peak_mib: float, **more: object) -> Result:
    around = steps(step_s) if isinstance(step_s, float) else list(step_s)
    return result(trainer, step_s=around, peak_mib=peak_mib, **more)  # type: ignore[arg-type]


def texts(found: Comparison) -> dict[str, str]:
    return {finding.topic: finding.text for finding in verdict(found)}


def test_one_trainer_that_is_best_in_both_is_the_one_to_use() -> None:
    found = texts(
        comparison(
            run("StandardTrainer", 0.1, 10), run(FLAT, 0.2, 40), run(GHOST, 0.15, 11), run(FAST, 0.3, 30)
        )
    )
    assert found["Use"] == (
        f"Train with {GHOST}: of the DP trainers it takes the least time and the least memory "
        "at tiny, batch 4, sequence 512."
    )
    assert found["Time"] == (
        f"Of the DP trainers {GHOST} takes the least time at tiny, batch 4, sequence 512, "
        f"1.50 x StandardTrainer's. The next one needs 1.33 x as much.{ONCE}"
    )
    assert "1.10 x StandardTrainer's. The next one needs 2.73 x as much" in found["Memory"]


def test_time_and_memory_are_weighed_at_the_largest_place() -> None:
    cells = [
        run(trainer, step_s * batch, peak * batch, batch_size=batch)
        for batch in (2, 4)
        for trainer, step_s, peak in (("StandardTrainer", 0.1, 10), (FLAT, 0.2, 40), (GHOST, 0.3, 11))
    ]
    found = texts(comparison(*cells))
    assert found["Use"] == (
        f"Train with {FLAT} where its memory fits, with {GHOST} where it does not: at tiny, batch 4, "
        f"sequence 512 {FLAT} takes 800.0 ms and 160.0 MiB, {GHOST} 1,200.0 ms and 44.0 MiB."
    )
    assert "at all 2 places, 2.00 x StandardTrainer's" in found["Time"]


def test_places_where_too_few_finished_to_compare_are_not_counted() -> None:
    cells = [
        run(trainer, 0.1 * batch * more, 10 * batch * more, batch_size=batch)
        for batch in (2, 4)
        for trainer, more in ((FLAT, 1), (GHOST, 2))
    ]
    lost = [result(FLAT, failure=OOM, batch_size=8), run(GHOST, 0.8, 80, batch_size=8)]
    found = texts(comparison(*cells, *lost))
    assert f"{FLAT} takes the least time at all 2 places where several of them finished" in found["Time"]


def test_a_difference_within_the_spread_is_none() -> None:
    found = texts(comparison(run(FLAT, steps(0.2, 0.1), 40), run(GHOST, steps(0.202, 0.1), 11)))
    assert found["Time"] == (
        f"Of the DP trainers {FLAT} and {GHOST} cannot be told apart at tiny, batch 4, sequence 512.{ONCE}"
    )
    assert found["Use"].startswith(
        f"Train with {GHOST}: of the DP trainers it takes the least memory, and none"
    )


def test_different_winners_are_listed_with_their_places() -> None:
    cells = [
        run(FLAT, 0.2, 10, batch_size=2),
        run(GHOST, 0.3, 11, batch_size=2),
        run(FLAT, 0.4, 30, batch_size=4),
        run(GHOST, 0.3, 12, batch_size=4),
    ]
    found = texts(comparison(*cells))
    assert "Use" not in found
    assert found["Time"] == (
        f"Of the DP trainers {FLAT} takes the least time at 1 of 2 places (tiny, batch 2, sequence 512); "
        f"{GHOST} takes the least time at 1 of 2 places (tiny, batch 4, sequence 512).{ONCE}"
    )


def test_a_single_step_carries_no_verdict_on_time() -> None:
    cells = [run(trainer, [0.1], peak) for trainer, peak in (("StandardTrainer", 9), (FLAT, 20), (GHOST, 11))]
    found = verdict(comparison(*cells))
    assert [f.text for f in found if f.topic == "Time"] == [
        "Of the DP trainers there are too few timed steps to tell at tiny, batch 4, sequence 512."
    ]
    assert not [point for f in found for point in f.points if point.startswith("Time")]
    assert not [f for f in found if f.topic == "Use"]


def test_equal_peaks_are_told_as_equal() -> None:
    found = texts(comparison(run(FLAT, 0.1, 100.0), run(GHOST, 0.2, 100.05)))
    assert f"{FLAT} and {GHOST} cannot be told apart" in found["Memory"]


def test_where_memory_ran_out_is_said_with_what_fitted() -> None:
    cells = [
        run("StandardTrainer", 0.1, 10),
        result(FLAT, failure=OOM),
        run(GHOST, 0.2, 20),
        run(FAST, 0.2, 20),
    ]
    assert texts(comparison(*cells))["Largest batch"] == (
        f"At tiny, batch 4, sequence 512 memory ran out with {FLAT}, "
        f"while StandardTrainer, {GHOST} and {FAST} fitted."
    )


def test_where_all_fit_the_lines_of_the_tightest_phase_are_extended_and_said_to_be() -> None:
    """FLAT's noise grows by 10 MiB a sample from 200 on, its backward by 100 from 24 on: the peak moves from
    the one to the other between batch 1 and 4. A line through the peaks (210 and 424) has a false slope.
    """
    cells = [
        run(
            trainer,
            0.1,
            max(peaks.values()),
            peak_in=peaks,
            batch_size=batch,
            seq_len=64,
            environment=MACHINE,
        )
        for batch in (1, 4)
        for trainer, peaks in (
            (FLAT, {"backward": 24 + 100 * batch, "noise": 200 + 10 * batch, "zero_grad": 30}),
            (GHOST, {"backward_norms": 24 + 10 * batch, "noise": 50}),
        )
    ]
    assert texts(comparison(*cells))["Largest batch"] == (
        "No experiment ran out of memory. Lines through each phase's peak at batch 1 and 4 reach the 1.0 GiB "
        f"of this device, for tiny, sequence 64, at no more than about: {GHOST} 100 (10.0 MiB a sample in "
        f"backward_norms), {FLAT} 10 (100.0 MiB a sample in backward). "
        "This is extrapolated, not measured; a peak can only grow faster than its line."
    )


def test_a_sample_of_a_few_kibibytes_is_not_told_as_nothing() -> None:
    cells = [
        run(
            trainer,
            0.1,
            1 + slope * batch,
            peak_in={"backward": 1 + slope * batch},
            batch_size=batch,
            environment=MACHINE,
        )
        for trainer, slope in ((FLAT, 1 / 512), (GHOST, 1 / 1024))
        for batch in (512, 1024)
    ]
    assert "1,047,552 (1.0 KiB a sample in backward)" in texts(comparison(*cells))["Largest batch"]
    assert "523,776 (2.0 KiB a sample in backward)" in texts(comparison(*cells))["Largest batch"]


def test_small_times_and_sizes_are_told_with_their_digits() -> None:
    cells = [
        run("StandardTrainer", 0.00001, 0.001, at_peak={"parameters": 0.001}),
        run(FLAT, 0.00004, 0.003, at_peak={"parameters": 0.001, "noise": 0.002}),
        run(GHOST, 0.00002, 0.005, at_peak={"parameters": 0.005}),
    ]
    found = verdict(comparison(*cells))
    (use,) = (f.text for f in found if f.topic == "Use")
    assert "takes 0.02 ms and 5.1 KiB" in use
    (flat,) = (f.points for f in found if f.topic == FLAT)
    assert flat[0].startswith("Memory: a peak of 3.1 KiB in backward against 1.0 KiB in backward: +0.002 MiB")
    assert "+0.03 ms" in flat[1]


def test_without_a_ledger_no_batch_is_extrapolated() -> None:
    cells = [
        run(trainer, 0.1, 24 + slope * batch, batch_size=batch, seq_len=64, environment=MACHINE)
        for trainer, slope in ((FLAT, 100), (GHOST, 10))
        for batch in (2, 4)
    ]
    assert "Largest batch" not in texts(comparison(*cells))


def test_the_extra_bytes_and_milliseconds_are_told_by_part() -> None:
    standard = result(
        step_s=steps(0.1, 0.001),
        peak_mib=20,
        at_peak={"parameters": 4, "activations": 16},
        phase_ms={"forward": 30, "backward": 60},
        moved=[("forward", "copy", 3), ("backward", "matrix_product", 5)],
    )
    private = result(
        GHOST,
        step_s=steps(0.25, 0.001),
        peak_mib=50,
        at_peak={"parameters": 4, "activations": 6, "per_sample_gradients": 40},
        phase_ms={"forward": 30, "backward_norms": 120, "backward_weighted": 60, "noise": 31},
        moved=[("forward", "copy", 3), ("backward_norms", "matrix_product", 9), ("noise", "noise", 8)],
    )
    (finding,) = (f for f in verdict(comparison(standard, private)) if f.topic == GHOST)
    memory, time, traffic = finding.points
    assert memory == (
        "Memory: a peak of 50.0 MiB in backward against 20.0 MiB in backward: +30.0 MiB, "
        "by per-sample gradients +40.0, activations -10.0."
    )
    assert time == (
        "Time: 2.50 x the step (95 % interval 2.50 to 2.50, from the steps of one run each): +150.0 ms, "
        "by backward +120.0, noise +31.0."
    )
    assert traffic == (
        "Traffic: 20.0 MiB moved in a step, +12.0 MiB: by phase noise +8.0, backward +4.0; "
        "by operator class noise +8.0, matrix product +4.0."
    )


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([], "No experiment finished."),
        ([result(FLAT, failure=Failure("error", "x"))], "No experiment finished."),
        (
            [result("StandardTrainer", step_s=0.1), result(FLAT, step_s=0.2)],
            "Too little was measured to set trainers against each other: it takes peaks "
            "(passes=clean,memory) or 5 timed steps.",
        ),
        ([result(FLAT, step_s=0.1)], "Nothing here was measured with two trainers under the same settings."),
        (
            [result(FLAT, step_s=[0.1, 0.3] * 5, peak_mib=9)],
            "Nothing here was measured with two trainers under the same settings.",
        ),
    ],
)
def test_no_verdict_where_the_data_carries_none(cells: list[Result], words: str) -> None:
    assert texts(comparison(*cells)) == {"No verdict": words}


def test_only_one_that_finished_is_not_the_fastest() -> None:
    place = comparison(run(FLAT, 0.1, 1), result(GHOST, failure=OOM)).places[0]
    assert fastest_at(place) is None


def test_parts_of_a_difference_add_up_to_it() -> None:
    more, less = {"a": 5.0, "b": 2.0}, {"a": 1.0, "c": 9.0}
    parts = parts_of_difference(more, less)
    assert parts == [("c", -9), ("a", 4), ("b", 2)]
    assert sum(value for _, value in parts) == sum(more.values()) - sum(less.values())


def test_what_the_listed_parts_leave_of_a_difference_is_told() -> None:
    standard = run("StandardTrainer", 0.1, 10, at_peak={"parameters": 10})
    held = {"parameters": 10, "noise": 5, "activations": 4, "gradients": 3, "temporary": 2, "inputs": 1}
    (finding,) = (
        f for f in verdict(comparison(standard, run(FLAT, 0.1, 25, at_peak=held))) if f.topic == FLAT
    )
    assert finding.points[0].endswith(
        "+15.0 MiB, by noise +5.0, activations +4.0, gradients +3.0, the rest +3.0."
    )


def test_a_peak_a_little_higher_is_not_told_as_equal() -> None:
    found = texts(comparison(run(FLAT, 0.1, 100.2), run(GHOST, 0.2, 100.0)))
    assert "The next one needs 1.0020 x as much" in found["Memory"]


def test_two_backward_passes_are_one() -> None:
    assert fold_backward({"backward_norms": 1, "clip": 5, "backward_weighted": 2}) == {
        "backward": 3,
        "clip": 5,
    }


def test_repeated_runs_need_no_caution() -> None:
    cells = [run(t, s, p, name=f"{t}{i}") for t, s, p in ((FLAT, 0.2, 9), (GHOST, 0.3, 8)) for i in (1, 2, 3)]
    assert texts(comparison(*cells))["Time"] == (
        f"Of the DP trainers {FLAT} takes the least time at tiny, batch 4, sequence 512. "
        "The next one needs 1.50 x as much."
    )


BUSY = {"environment": {"cpu_cores": "2", "torch_threads": "2"}, "others_processors": 1.0}


def test_a_disturbed_run_takes_the_award_and_the_intervals_of_its_place_away() -> None:
    cells = [
        run("StandardTrainer", 0.1, 10, **BUSY),
        run(FLAT, 0.2, 40),
        run(GHOST, 0.15, 11),
    ]
    found = comparison(*cells)
    assert texts(found).keys() == {"Memory", FLAT, GHOST}
    assert f"{GHOST} needs the least memory" in texts(found)["Memory"]
    times = [point for finding in verdict(found) for point in finding.points if "Time" in point]
    assert times == [
        f"Time: {ratio} x the step, where runs were disturbed: repeat them before you rely on it."
        for ratio in ("2.00", "1.50")
    ]
    assert fastest_at(found.places[0]) is None


def test_places_where_a_run_was_disturbed_are_left_out_of_the_verdict_on_time() -> None:
    cells = [
        run(trainer, step_s * batch, peak * batch, batch_size=batch, **(BUSY if batch == 8 else {}))
        for batch in (2, 4, 8)
        for trainer, step_s, peak in ((FLAT, 0.2, 40), (GHOST, 0.3, 11))
    ]
    found = texts(comparison(*cells))
    assert found["Time"].startswith(
        f"Of the DP trainers {FLAT} takes the least time at all 2 places where several of them finished "
        "undisturbed."
    )
    assert f"with {GHOST} where it does not: at tiny, batch 4" in found["Use"], "the largest undisturbed"
    assert f"{GHOST} needs the least memory at all 3 places." in found["Memory"]


def test_disturbed_runs_of_a_cell_are_left_out_where_others_are_calm() -> None:
    """One of three runs was disturbed, and took ten times as long: neither its time nor its spread counts."""
    cells = [
        run(trainer, step_s * slower, 9, name=f"{trainer}{i}", **more)
        for trainer, step_s in ((FLAT, 0.2), (GHOST, 0.3))
        for i, slower, more in ((1, 1.0, {}), (2, 1.001, {}), (3, 10.0, BUSY))
    ]
    found = comparison(*cells)
    assert "The next one needs 1.50 x as much." in texts(found)["Time"]
    assert ONCE not in texts(found)["Time"]
    assert [cell.figures["latency/step_ms_median"] for cell in found.cells] == pytest.approx([200.1, 300.15])


def test_a_cell_whose_every_run_was_disturbed_is_called_nothing() -> None:
    cells = [
        run(trainer, step_s, 9, name=f"{trainer}{i}", **more)
        for trainer, step_s, more in ((FLAT, 0.2, BUSY), (GHOST, 0.3, {}))
        for i in (1, 2, 3)
    ]
    assert texts(comparison(*cells)).keys() == {"Memory"}


def test_disturbed_times_alone_carry_no_verdict() -> None:
    cells = [result(trainer, step_s=[0.1] * 9, **BUSY) for trainer in (FLAT, GHOST)]  # type: ignore[arg-type]
    assert texts(comparison(*cells)) == {
        "No verdict": "Only step times were measured, and they were disturbed."
    }


def test_a_trainer_whose_gradient_is_wrong_wins_nothing() -> None:
    wrong = run(FLAT, steps(0.1), 10, check=GradientCheck(fault="samples mix"))
    others = [run(GHOST, steps(0.2), 20), run(FAST, steps(0.3), 30)]
    found = comparison(wrong, *others)
    assert texts(found)["Use"].startswith(f"Train with {GHOST}: of the DP trainers it takes the least time")
    assert FLAT not in texts(found)["Time"] + texts(found)["Memory"]
