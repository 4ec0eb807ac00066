"""Where memory ran out, or would."""

import pytest
from example_findings import FAST, FLAT, GHOST, HERE, OOM, STANDARD, run, told
from example_results import comparison, result

from dpprof.findings.verdict.largest_batch import extrapolate
from dpprof.record.figures.results import Result

TOPIC = "Largest batch"
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
    said = told(comparison(*cells), TOPIC)
    assert said == f"At {HERE} memory ran out with flat, while standard, ghost and fast fitted."
    many = comparison(*(result(FLAT, failure=OOM, batch_size=batch) for batch in range(1, 6)))
    assert told(many, TOPIC).endswith("; and at 2 more places.")


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
    of = comparison(*cells)
    reaches = extrapolate(of)
    assert [(one.line.trainer, one.batch, one.line.phase, one.limit_mib) for one in reaches] == [
        (GHOST, 100, "backward_norms", 1024),
        (FLAT, 10, "backward", 1024),
    ]
    assert [one.line.slope for one in reaches] == pytest.approx([10, 100])
    assert "For tiny, sequence 64," in told(of, TOPIC)
    assert "flat 10 (100.0 MiB a sample in backward). This is extrapolated" in told(of, TOPIC)


def test_a_sample_of_a_few_kibibytes_is_not_told_as_nothing() -> None:
    of = comparison(*grown({FLAT: (1, 1 / 512), GHOST: (1, 1 / 1024)}, (512, 1024)))
    assert "ghost 1,047,552 (1.0 KiB a sample in backward), flat 523,776" in told(of, TOPIC)


def test_nothing_is_told_of_one_trainer_alone_or_without_a_ledger() -> None:
    assert extrapolate(comparison(*grown({STANDARD: (1, 1), FLAT: (1, 2)}, (2, 4)))) == []
    cells = [
        run(trainer, 0.1, 24 + slope * batch, batch_size=batch, environment=MACHINE)
        for trainer, slope in ((FLAT, 100), (GHOST, 10))
        for batch in (2, 4)
    ]
    assert told(comparison(*cells), TOPIC) == ""
