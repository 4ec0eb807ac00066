import dataclasses
from typing import Any

import pytest
from example_results import comparison, result

from dpprof.config.experiment import ExperimentConfig
from dpprof.figures.results import Result
from dpprof.record.ledger import Doubt, TrafficRow
from dpprof.record.record import PassOutcome
from dpprof.reports.comparison import page
from dpprof.reports.comparison.cells import Comparison, compare
from dpprof.reports.comparison.estimates import _is_device, pairs
from dpprof.reports.comparison.markdown import cell_table, estimate_table
from dpprof.reports.comparison.verdict import verdict

MIB = 2**20
FLAT, GHOST = "DPSGDTrainer", "DPGhostClippingTrainer"
HELD = {"parameters": 40.0, "per_sample_gradients": 60.0}
H200 = {"gpu": "NVIDIA H200", "gpu_memory_gib": "139.8", "torch_version": "2.13.0"}


def estimate(trainer: str = FLAT, target: str = "H200", peak: float = 100, **settings: Any) -> Result:
    """An estimate of `peak` MiB with one phase that moves 4.8 GB: a floor of 1 ms on an H200."""
    held = {"parameters": 40.0, "per_sample_gradients": peak - 40}
    made = result(
        trainer, step_s=[1.0], at_peak=held, passes="estimate", device="cuda", target=target, **settings
    )
    record = made.record
    assert record is not None
    assert record.ledger is not None
    record.passes = {"estimate": PassOutcome("finished")}
    record.step_s, record.phase_s = [], {}
    record.ledger.traffic = [TrafficRow("aten::unique_dim", "other", "backward", 1, 4_800_000_000, 0, 0)]
    record.memory.peak_allocated = round((peak + 32) * MIB)
    return made


def measured(trainer: str = FLAT) -> Result:
    """A run on an H200; its configuration says so though this machine has none."""
    made = result(trainer, step_s=[0.003] * 9, peak_mib=132, at_peak=HELD, environment=H200)
    on_cuda = dataclasses.replace(made.config, device="cuda", model_size="1b", vocab_size=0)
    sizes = ExperimentConfig(device="cuda").resolve(cuda_available=True)
    names = ("vocab_size", "hidden_dim", "num_layers", "num_heads")
    config = dataclasses.replace(on_cuda, **{name: getattr(sizes, name) for name in names})
    return dataclasses.replace(made, config=config)


def both(*found: Result) -> Comparison:
    return compare("both", {"guess": found[:1], "truth": found[1:]})


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
    assert estimate_table(both(estimate(batch_size=8), measured())) == ""


@pytest.mark.parametrize(
    ("target", "gpu", "same"),
    [
        ("H200", "NVIDIA H200", True),
        ("A100-80GB", "NVIDIA A100-SXM4-80GB", True),
        ("A100-40GB", "NVIDIA A100-SXM4-80GB", False),
        ("RTX-4090", "NVIDIA GeForce RTX 4090", True),
        ("L4", "NVIDIA L40S", False),
        ("none", "", False),
    ],
)
def test_a_device_is_known_by_its_own_name(target: str, gpu: str, same: bool) -> None:
    assert _is_device(target, gpu) is same


def test_the_verdict_says_first_that_nothing_was_run_and_what_fits() -> None:
    found = verdict(
        comparison(estimate(peak=100), estimate(GHOST, peak=50), estimate("StandardTrainer", peak=45))
    )
    assert found[0].topic == "Estimated"
    assert found[0].text.startswith("Nothing was run")
    assert any("upper bound" in point for point in found[0].points)
    assert found[1].text == "By these estimates H200 (139.8 GiB) holds every one of the 3 experiments."
    assert {f.topic for f in found} & {"Time", "Largest batch"} == set(), "nothing tells of these"
    (memory,) = [f.text for f in found if f.topic == "Memory"]
    assert "estimated for H200" in memory


def test_where_both_are_there_the_measurement_counts() -> None:
    guesses = [estimate(), estimate(GHOST), estimate(batch_size=8), estimate(GHOST, batch_size=8)]
    found = verdict(compare("both", {"guess": guesses, "truth": [measured(), measured(GHOST)]}))
    assert "the measurement counts below" in found[0].text
    (time,) = [f.text for f in found if f.topic == "Time"]
    assert "1b, batch 4, sequence 512" in time
    assert "estimated" not in time
    (memory,) = [f.text for f in found if f.topic == "Memory"]
    assert "at all 2 places" in memory, "batch 4 once, though it was estimated too, and batch 8"


def test_what_does_not_fit_is_named_with_what_it_needs() -> None:
    small = estimate(device_memory_gib=0.6, peak=100)
    (fits,) = [f.text for f in verdict(comparison(small)) if f.topic == "Fits"]
    assert fits.startswith(f"1 of 1 do not fit H200 (614.4 MiB): {FLAT} at 1b, batch 4, sequence 512")
    assert "(644.0 MiB)" in fits, "100 + 32 + 512 MiB"


def test_what_is_in_doubt_is_told_and_decides() -> None:
    clear, unclear = estimate(device_memory_gib=0.7), estimate(GHOST, device_memory_gib=0.7)
    for made, size in ((clear, 5), (unclear, 200)):
        assert made.record is not None
        assert made.record.ledger is not None
        made.record.ledger.doubts = [Doubt("workspace", "workspaces are not in it", size * MIB)]
    found = comparison(clear, unclear)
    (rests, *_), fits = verdict(found), [f.text for f in verdict(found) if f.topic == "Fits"]
    assert "Workspaces are not in it, up to 200.0 MiB more." in rests.points
    (sentence,) = fits
    assert sentence.startswith(
        "1 of 2 may or may not fit H200 (716.8 MiB), as what is in doubt decides: "
        f"{GHOST} at 1b, batch 4, sequence 512"
    )
    html = page.render(page.compute(found, {}))
    assert "needs 644.0 MiB: may or may not fit, as up to 200.0 MiB more are in doubt" in html
    assert html.count("needs 644.0 MiB: fits") == 1


def test_the_page_and_the_table_tell_estimates_from_measurements() -> None:
    found = both(estimate(), measured())
    html = page.render(page.compute(found, {}))
    assert "batch 4, sequence 512, estimated for H200 (139.8 GiB), guess" in html
    assert "at least <b>1.00</b> ms" in html
    assert "needs 644.0 MiB: fits" in html
    assert '<table id="pairs">' in html
    assert ">= 1.00" in cell_table(found)
    assert "3.00" in estimate_table(found)


def test_a_page_of_estimates_alone_does_not_say_how_they_were_measured() -> None:
    alone = page.render(page.compute(comparison(estimate()), {}))
    assert "How this was estimated" in alone
    assert "steps that nothing watched" not in alone
    mixed = page.render(page.compute(both(estimate(), measured()), {}))
    assert "How this was measured" in mixed
    assert "steps that nothing watched" in mixed


def test_a_measured_comparison_knows_nothing_of_estimates() -> None:
    html = page.render(page.compute(comparison(measured()), {}))
    assert '<table id="pairs">' not in html
    assert "estimated for" not in html
