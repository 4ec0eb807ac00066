import dataclasses

import pytest
from example_estimates import GHOST, both, estimate, measured
from example_results import comparison

from dpprof.reports.comparison import page
from dpprof.reports.comparison.data import compute
from dpprof.reports.comparison.estimates import pairs
from dpprof.reports.comparison.markdown import cell_table, estimate_table


@pytest.mark.parametrize(("largest", "meet"), [(13, True), (9, False)])
def test_of_poisson_sampled_batches_only_equal_ones_meet(largest: int, meet: bool) -> None:
    guess = estimate(poisson_sampling=True, poisson_tail=1e-4)
    assert guess.config.estimated_batch == 13, "of 4 expected"
    truth = measured()
    assert truth.record is not None
    truth.record.step_samples = [3, largest]
    truth = dataclasses.replace(truth, config=dataclasses.replace(truth.config, poisson_sampling=True))
    assert bool(pairs(both(guess, truth))) is meet


def test_an_estimate_meets_the_measurement_of_the_same_experiment() -> None:
    (pair,) = pairs(both(estimate(), measured(), measured(GHOST)))
    assert (pair.estimated_mib, pair.ledger_mib) == (100, 100)
    assert pair.ledger_off_pct == 0
    assert (pair.estimated_allocator_mib, pair.allocator_mib) == (132, 132)
    assert pair.floor_ms == pytest.approx(1.0)
    assert pair.to_floor == pytest.approx(3.0)


def test_the_floor_of_another_device_is_not_compared() -> None:
    (pair,) = pairs(both(estimate(target="H100"), measured()))
    assert (pair.floor_ms, pair.to_floor) == (None, None)
    assert pair.step_ms == pytest.approx(3.0)


def test_other_settings_are_no_pair() -> None:
    assert pairs(both(estimate(batch_size=8), measured())) == []
    assert estimate_table([]) == ""


def test_the_page_and_the_table_tell_estimates_from_measurements() -> None:
    found = both(estimate(), measured())
    html = page.render(compute(found))
    assert "batch 4, sequence 512, estimated for H200 (139.8 GiB), guess" in html
    assert "at least <b>1.00</b> ms" in html
    assert "needs 644.0 MiB: fits" in html
    assert '<table id="pairs"' in html
    assert ">= 1.00" in cell_table(compute(found))
    assert "3.00" in estimate_table(pairs(found))


def test_a_page_of_estimates_alone_does_not_say_how_they_were_measured() -> None:
    alone = page.render(compute(comparison(estimate())))
    assert "How this was estimated" in alone
    assert "unobserved steps" not in alone
    mixed = page.render(compute(both(estimate(), measured())))
    assert "How this was measured" in mixed
    assert "unobserved steps" in mixed


def test_a_measured_comparison_knows_nothing_of_estimates() -> None:
    html = page.render(compute(comparison(measured())))
    assert '<table id="pairs">' not in html
    assert "estimated for" not in html
