"""What was estimated, and whether it fits."""

from example_estimates import FLAT, GHOST, estimate, measured
from example_findings import findings, found
from example_results import MIB, comparison

from dpprof.figures.names import PEAK, STEP
from dpprof.record.ledger import Doubt
from dpprof.reports.comparison import page
from dpprof.reports.comparison.comparison import compare
from dpprof.reports.comparison.data import compute
from dpprof.reports.comparison.findings.advice import Advice
from dpprof.reports.comparison.findings.best import Ranking
from dpprof.reports.comparison.findings.estimated import Estimated, Fit, Need
from dpprof.reports.comparison.findings.largest_batch import Extrapolation
from dpprof.reports.comparison.findings.verdict import verdict


def test_the_advice_comes_first_then_what_fits_and_what_was_not_run() -> None:
    of = comparison(estimate(peak=100), estimate(GHOST, peak=50), estimate("StandardTrainer", peak=45))
    advised, second, first = (finding.data for finding in verdict(of)[:3])
    assert isinstance(advised, Advice)
    assert isinstance(first, Estimated)
    assert (first.num_estimated, first.num_experiments, first.is_measured_too) == (3, 3, False)
    assert any("upper bound" in text for text in first.rests_on)
    assert second == Fit("H200 (139.8 GiB)", 3, True)
    assert [ranking.metric for ranking in found(of, Ranking)] == [PEAK], "nothing tells of time"
    assert found(of, Extrapolation) == []
    (told,) = findings(of, Estimated)
    assert told.text.startswith("Nothing was run: the figures come from fake tensors")
    assert len(told.points) == len(first.rests_on)


def test_where_both_are_there_the_measurement_counts() -> None:
    guesses = [estimate(), estimate(GHOST), estimate(batch_size=8), estimate(GHOST, batch_size=8)]
    of = compare("both", {"guess": guesses, "truth": [measured(), measured(GHOST)]})
    (first,) = found(of, Estimated)
    assert (first.num_estimated, first.num_experiments, first.is_measured_too) == (4, 6, True)
    rankings = {ranking.metric: ranking for ranking in found(of, Ranking)}
    assert rankings[STEP].places.names == ("1b, batch 4, sequence 512",)
    assert rankings[PEAK].places == rankings[STEP].places, "where trainers were measured"
    (advised,) = found(of, Advice)
    assert advised.batch_size == 8, "batch 4 was measured"


def test_what_does_not_fit_has_what_it_needs() -> None:
    (finding,) = findings(comparison(estimate(device_memory_gib=0.6, peak=100)), Fit)
    at = "1b, batch 4, sequence 512, estimated for H200 (614.4 MiB)"
    assert finding.data == Fit("H200 (614.4 MiB)", 1, False, (Need(FLAT, at, 100 + 32 + 512),))
    assert finding.text == f"1 of 1 do not fit H200 (614.4 MiB): flat at {at} (644.0 MiB)."


def test_what_is_in_doubt_decides() -> None:
    clear, unclear = estimate(device_memory_gib=0.7), estimate(GHOST, device_memory_gib=0.7)
    for made, size in ((clear, 5), (unclear, 200)):
        assert made.record is not None
        assert made.record.ledger is not None
        made.record.ledger.doubts = [Doubt("workspace", "workspaces are not in it", size * MIB)]
    of = comparison(clear, unclear)
    (told,) = findings(of, Estimated)
    assert "Workspaces are not in it, up to 200.0 MiB more." in told.points
    (finding,) = findings(of, Fit)
    assert (finding.data.fits, [need.trainer for need in finding.data.cells]) == (None, [GHOST])
    assert finding.text.startswith("1 of 2 may or may not fit H200 (716.8 MiB)")
    html = page.render(compute(of))
    assert "needs 644.0 MiB: may or may not fit, as up to 200.0 MiB more are in doubt" in html
    assert html.count("needs 644.0 MiB: fits") == 2, "in its tile and in its row"
