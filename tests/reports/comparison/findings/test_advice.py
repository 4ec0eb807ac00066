"""What estimates advise."""

from typing import Any

from example_estimates import FLAT, GHOST, estimate
from example_findings import findings, found, run
from example_results import comparison

from dpprof.figures.results import Result
from dpprof.record.ledger import TrafficRow
from dpprof.reports.comparison.findings.advice import Advice, Growth, Option
from dpprof.reports.comparison.findings.choice import Choice
from dpprof.reports.comparison.findings.verdict import verdict

BESIDE = 32 + 512  # cuBLAS's workspace and the context


def at_least(floor_ms: float, trainer: str, **settings: Any) -> Result:
    """An estimate with a floor of so many milliseconds on an H200."""
    made = estimate(trainer, **settings)
    assert made.record is not None
    assert made.record.ledger is not None
    moved = round(floor_ms * 4_800_000_000)
    made.record.ledger.traffic = [TrafficRow("aten::mm", "matrix_product", "backward", 1, moved, 0, 0)]
    return made


def test_what_fits_with_the_lowest_bound_is_advised_and_the_least_memory_for_larger_batches() -> None:
    (finding,) = findings(comparison(at_least(3, FLAT, peak=5000), at_least(4, GHOST, peak=2000)), Advice)
    ghost, flat = finding.data.options
    assert ghost == Option(GHOST, 2000 + BESIDE, 4.0, True) == finding.data.smallest
    assert flat == Option(FLAT, 5000 + BESIDE, 3.0, True) == finding.data.start
    assert finding.text == (
        "For 1b (1.23M parameters) on H200 (139.8 GiB), batch 4, sequence 512, estimates say: start with "
        "flat. It fits, and a step takes at least 3.0 ms against ghost 4.0 ms: a bound, not a prediction. "
        "For larger batches, ghost needs the least memory, 2.5 GiB against flat 5.4 GiB. Measure both. "
        "All fit."
    )


def test_one_that_is_best_in_both_is_advised_alone() -> None:
    (finding,) = findings(comparison(at_least(5, FLAT, peak=5000), at_least(4, GHOST, peak=2000)), Advice)
    assert finding.data.start == finding.data.smallest
    assert (
        "start with ghost. It needs the least memory, 2.5 GiB against flat 5.4 GiB. A step takes at least "
        "4.0 ms against flat 5.0 ms: a bound, not a prediction. All fit." in finding.text
    )


def test_what_does_not_fit_is_said_and_not_started_with() -> None:
    held: dict[str, Any] = {"device_memory_gib": 3.0}
    of = comparison(at_least(3, FLAT, peak=5000, **held), at_least(4, GHOST, peak=2000, **held))
    (finding,) = findings(of, Advice)
    assert [option.fits for option in finding.data.options] == [True, False]
    assert "start with ghost." in finding.text
    assert finding.text.endswith("flat does not fit.")
    (none,) = findings(
        comparison(estimate(FLAT, peak=5000, **held), estimate(GHOST, peak=4000, **held)), Advice
    )
    assert none.data.start is none.data.smallest is None
    assert "no DP trainer fits. ghost needs the least memory, 4.4 GiB against flat 5.4 GiB." in none.text


def test_the_largest_batch_that_fits_is_told_with_what_it_adds() -> None:
    cells = [
        estimate(trainer, peak=peak * batch, batch_size=batch, device_memory_gib=3.0)
        for batch in (2, 4, 8)
        for trainer, peak in ((FLAT, 800), (GHOST, 500))
    ]
    (finding,) = findings(comparison(*cells), Advice)
    assert finding.data.batch_size == 4
    assert finding.data.growth == Growth(2, 4, {FLAT: 1600.0, GHOST: 1000.0})
    assert finding.text.endswith("From batch 2 to 4, ghost needs 1,000.0 MiB more and flat 1.6 GiB more.")


def test_estimates_of_a_larger_model_follow_the_choice_and_leave_the_rest_as_it_is() -> None:
    of = comparison(run("StandardTrainer", 0.1, 10), run(FLAT, 0.2, 40), run(GHOST, 0.15, 11))
    alone, told = verdict(of), verdict(of, comparison(estimate(), estimate(GHOST, peak=50)))
    assert isinstance(told[0].data, Choice)
    assert isinstance(told[1].data, Advice)
    assert told[1].text.startswith("For a larger model, 1b ")
    assert [told[0], *told[2:]] == alone


def test_one_trainer_alone_is_no_advice() -> None:
    assert found(comparison(estimate(), estimate("StandardTrainer")), Advice) == []


def test_what_else_varies_is_told() -> None:
    cells = [estimate(t, peak=50, precision=p) for p in ("bf16", "fp32") for t in (FLAT, GHOST)]
    (finding,) = findings(comparison(*cells), Advice)
    assert ", batch 4, sequence 512, precision bf16, estimates say" in finding.text
