"""Where memory ran out, or would."""

import pytest
from example_findings import FAST, FLAT, GHOST, HERE, OOM, STANDARD, findings, found, run
from example_results import comparison, result

from dpprof.figures.results import Result
from dpprof.reports.comparison.findings.largest_batch import Extrapolation, Shortage, Shortages

MACHINE = {"memory_gib": "1.0"}


def grown(peaks: dict[str, tuple[float, float]], batches: tuple[int, ...]) -> list[Result]:
    """Trainers whose peak in backward is a first number and a second one for each sample."""
    return [
        run(
            trainer,
            0.1,
            fixed + slope * batch,
            peak_in={"backward": fixed + slope * batch},
            batch_size=batch,
            environment=MACHINE,
        )
        for trainer, (fixed, slope) in peaks.items()
        for batch in batches
    ]


def test_where_memory_ran_out_is_said_with_what_fitted() -> None:
    cells = [run(STANDARD, 0.1, 10), result(FLAT, failure=OOM), run(GHOST, 0.2, 20), run(FAST, 0.2, 20)]
    (finding,) = findings(comparison(*cells), Shortages)
    assert finding.data.places == (Shortage(HERE, (FLAT,), (STANDARD, GHOST, FAST)),)
    assert finding.text.endswith("with flat, while standard, ghost and fast fitted.")


def test_only_the_first_places_are_listed() -> None:
    cells = [result(FLAT, failure=OOM, batch_size=batch) for batch in range(1, 6)]
    (finding,) = findings(comparison(*cells), Shortages)
    assert len(finding.data.places) == 5
    assert finding.text.endswith("; and at 2 more places.")


def test_where_all_fit_the_lines_of_the_tightest_phase_are_extended() -> None:
    """FLAT's noise grows by 10 MiB a sample from 200 on, its backward by 100 from 24 on: the peak moves from
    the one to the other between batch 1 and 4. A line through the peaks (210 and 424) has a false slope.
    """
    cells = [
        run(trainer, 0.1, max(peaks.values()), peak_in=peaks, batch_size=b, seq_len=64, environment=MACHINE)
        for b in (1, 4)
        for trainer, peaks in (
            (FLAT, {"backward": 24 + 100 * b, "noise": 200 + 10 * b, "zero_grad": 30}),
            (GHOST, {"backward_norms": 24 + 10 * b, "noise": 50}),
        )
    ]
    (finding,) = findings(comparison(*cells), Extrapolation)
    data = finding.data
    assert (data.model, data.place, data.batches, data.limit_mib) == ("tiny", "sequence 64", (1, 4), 1024)
    assert [(reach.trainer, reach.batch, reach.phase) for reach in data.reaches] == [
        (GHOST, 100, "backward_norms"),
        (FLAT, 10, "backward"),
    ]
    assert [reach.mib_per_sample for reach in data.reaches] == pytest.approx([10, 100])
    assert "flat 10 (100.0 MiB a sample in backward). This is extrapolated" in finding.text


def test_a_sample_of_a_few_kibibytes_is_not_told_as_nothing() -> None:
    (finding,) = findings(
        comparison(*grown({FLAT: (1, 1 / 512), GHOST: (1, 1 / 1024)}, (512, 1024))), Extrapolation
    )
    assert [reach.batch for reach in finding.data.reaches] == [1_047_552, 523_776]
    assert "1,047,552 (1.0 KiB a sample in backward)" in finding.text


def test_standard_training_is_not_among_them_and_one_trainer_alone_is_not_told_of() -> None:
    assert found(comparison(*grown({STANDARD: (1, 1), FLAT: (1, 2)}, (2, 4))), Extrapolation) == []


def test_without_a_ledger_no_batch_is_extrapolated() -> None:
    cells = [
        run(trainer, 0.1, 24 + slope * batch, batch_size=batch, environment=MACHINE)
        for trainer, slope in ((FLAT, 100), (GHOST, 10))
        for batch in (2, 4)
    ]
    assert found(comparison(*cells), Extrapolation) == []
