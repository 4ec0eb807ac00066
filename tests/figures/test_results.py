import dataclasses

from example_results import MIB, result

from dpprof.figures.results import Result, describe
from dpprof.record.record import Memory, PassOutcome


def estimated(allocator_mib: float) -> Result:
    made = result("DPSGDTrainer", step_s=0.1, at_peak={"activations": 6, "noise": 4}, passes="estimate")
    assert made.record is not None
    record = dataclasses.replace(
        made.record,
        passes={"estimate": PassOutcome("finished")},
        memory=Memory(peak_allocated=round(allocator_mib * MIB)),
    )
    return dataclasses.replace(made, record=record)


def test_the_share_of_the_largest_category_is_that_of_the_peak_beside_it() -> None:
    assert describe(estimated(10)).startswith("estimated peak 10.0 MiB (60 % activations)")
    assert describe(estimated(40)).startswith("estimated peak 40.0 MiB (15 % activations)"), "6 of 40"


def test_a_small_peak_and_a_short_step_are_told() -> None:
    assert describe(result(step_s=0.00002, peak_mib=0.01)) == "step 0.02 ms, peak 10.2 KiB"


def test_of_poisson_sampled_batches_the_largest_is_told() -> None:
    varied = result(step_s=0.01, peak_mib=10, poisson_sampling=True)
    assert varied.record is not None
    varied.record.step_samples = [3, 0, 7]
    assert describe(varied) == "step 10.0 ms, peak 10.0 MiB, batches of up to 7 samples"
