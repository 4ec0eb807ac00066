"""What estimates say: what fits, and with which trainer to start."""

from typing import Any

from example_estimates import FLAT, GHOST, estimate, measured, moving
from example_findings import findings, run, told
from example_results import MIB, comparison

from dpprof.findings.comparison.comparison import Comparison, compare
from dpprof.findings.comparison.data import compute
from dpprof.findings.verdict.verdict import verdict
from dpprof.pages.comparison import page
from dpprof.record.figures.results import Result
from dpprof.record.ledger import Doubt


def test_the_advice_comes_first_then_what_fits_and_what_was_not_run() -> None:
    of = comparison(estimate(peak=100), estimate(GHOST, peak=50), estimate("StandardTrainer", peak=45))
    topics = [finding.topic for finding in verdict(of)]
    assert topics[:3] == ["Estimate", "Fits", "Estimated"]
    assert "Memory" in topics
    assert not {"Time", "Largest batch"} & set(topics), "nothing tells of time"
    assert "All 3 experiments fit H200 (139.8 GiB)" in told(of, "Fits")
    assert told(of, "Estimated").startswith("Nothing was run: ")
    assert "pper bound" in told(of, "Estimated")


def test_where_both_are_there_the_measurement_counts() -> None:
    guesses = [estimate(), estimate(GHOST), estimate(batch_size=8), estimate(GHOST, batch_size=8)]
    of = compare("both", {"guess": guesses, "truth": [measured(), measured(GHOST)]})
    assert told(of, "Estimated").startswith("4 of 6 experiments were not run: ")
    assert "the measurement counts" in told(of, "Estimated")
    for topic in ("Time", "Memory"):
        assert "at 1b, batch 4, sequence 512" in told(of, topic), "where trainers were measured"
    assert "batch 8" in told(of, "Estimate"), "batch 4 was measured"


def test_what_does_not_fit_has_what_it_needs() -> None:
    at = "1b, batch 4, sequence 512, estimated for H200 (614.4 MiB)"
    said = told(comparison(estimate(device_memory_gib=0.6, peak=100)), "Fits")
    assert said == f"1 of 1 does not fit H200 (614.4 MiB): flat at {at} (644.0 MiB)."


def test_what_is_in_doubt_decides() -> None:
    clear, unclear = estimate(device_memory_gib=0.7), estimate(GHOST, device_memory_gib=0.7)
    for made, size in ((clear, 5), (unclear, 200)):
        assert made.record is not None
        assert made.record.ledger is not None
        made.record.ledger.doubts = [Doubt("workspace", "workspaces are not in it", size * MIB)]
    of = comparison(clear, unclear)
    assert "Workspaces are not in it, up to 200.0 MiB more." in told(of, "Estimated")
    assert told(of, "Fits").startswith("1 of 2 may or may not fit H200 (716.8 MiB)")
    assert "flat" not in told(of, "Fits")
    html = page.render(compute(of))
    assert "needs 644.0 MiB: may or may not fit, as up to 200.0 MiB" in html
    assert html.count("needs 644.0 MiB: fits") == 1


def at_least(ms: float, trainer: str, **settings: Any) -> Result:
    """An estimate of a step that is predicted to take twice so many milliseconds."""
    made = estimate(trainer, **settings)
    assert made.record is not None
    assert made.record.ledger is not None
    made.record.ledger.traffic = [moving(ms)]
    return made


def pair(flat_ms: float, **held: float) -> Comparison:
    return comparison(at_least(flat_ms, FLAT, peak=5000, **held), at_least(4, GHOST, peak=2000, **held))


def test_what_fits_and_is_predicted_fastest_is_advised_and_the_least_memory_for_larger_batches() -> None:
    near, far = (told(pair(flat_ms), "Estimate") for flat_ms in (3, 5))
    assert near.startswith("For 1b (1.23M parameters) on H200 (139.8 GiB), batch 4, ")
    for said, words in (
        (near, "start with flat"),
        (near, "5.40 to 7.5 ms against ghost 7.20 to 10.0 ms"),
        (near, "2.5 GiB against flat 5.4 GiB"),
        (near, "All fit."),
        (far, "start with ghost. It needs the least memory"),
        (far, "7.20 to 10.0 ms against flat 9.00 to 12.5 ms"),
    ):
        assert words in said


def test_of_those_that_need_as_much_the_one_that_was_the_fastest_elsewhere_is_named() -> None:
    bk = "DPBookKeepingTrainer"
    alike = comparison(estimate(FLAT, peak=100), estimate(GHOST, peak=100), estimate(bk, peak=100))
    said = told(alike, "Estimate")
    assert (
        "start with bk. It needs the least memory, 644.0 MiB against flat 644.0 MiB and ghost 644.0" in said
    )
    assert "(of those alike, it was the fastest where all were measured, on a CPU)" in said


def test_what_does_not_fit_is_said_and_not_started_with() -> None:
    held: dict[str, Any] = {"device_memory_gib": 3.0}
    said = told(pair(3, **held), "Estimate")
    assert "start with ghost." in said
    assert "takes 7.20 to 10.0 ms against flat 5.40 to 7.5 ms" in said, (
        "its own time, though another has a lower one"
    )
    assert said.endswith("flat does not fit.")
    none = comparison(estimate(FLAT, peak=5000, **held), estimate(GHOST, peak=4000, **held))
    assert "no DP trainer fits. ghost needs the least memory, 4.4 GiB" in told(none, "Estimate")


def test_the_largest_batch_that_fits_is_told_with_what_it_adds() -> None:
    cells = [
        estimate(trainer, peak=peak * batch, batch_size=batch, device_memory_gib=3.0)
        for batch in (2, 4, 8)
        for trainer, peak in ((FLAT, 800), (GHOST, 500))
    ]
    said = told(comparison(*cells), "Estimate")
    assert ", batch 4, " in said
    assert said.endswith(
        "From batch 2 to 4, the memory needed grows by 1,000.0 MiB with ghost and 1.6 GiB with flat."
    )


def test_estimates_of_a_larger_model_follow_the_choice_and_leave_the_rest_as_it_is() -> None:
    of = comparison(run("StandardTrainer", 0.1, 10), run(FLAT, 0.2, 40), run(GHOST, 0.15, 11))
    alone, both = verdict(of), verdict(of, comparison(estimate(), estimate(GHOST, peak=50)))
    assert [found.topic for found in both[:2]] == ["Use", "Estimate"]
    assert both[1].text.startswith("For a larger model, 1b ")
    assert [both[0], *both[2:]] == alone


def test_one_trainer_alone_is_no_advice_and_what_else_varies_is_told() -> None:
    assert findings(comparison(estimate(), estimate("StandardTrainer")), "Estimate") == []
    cells = [estimate(t, peak=50, precision=p) for p in ("bf16", "fp32") for t in (FLAT, GHOST)]
    assert ", batch 4, sequence 512, precision bf16, estimates say" in told(comparison(*cells), "Estimate")
