import dataclasses

import pytest
from example_results import MIB, result

from dpprof.record.figures.results import Result, describe
from dpprof.record.record import Failure, FailureKind, Memory, PassOutcome, PassStatus

DONE, RUNS, WRONG = (
    PassOutcome(PassStatus.FINISHED),
    PassOutcome(PassStatus.RUNNING),
    PassOutcome(PassStatus.FAILED, "why"),
)
SKIPPED = PassOutcome(PassStatus.SKIPPED, "no GPU")


def estimated(allocator_mib: float) -> Result:
    made = result("DPSGDTrainer", step_s=0.1, at_peak={"activations": 6, "noise": 4}, passes="estimate")
    assert made.record is not None
    record = dataclasses.replace(
        made.record,
        passes={"estimate": PassOutcome(PassStatus.FINISHED)},
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


@pytest.mark.parametrize(
    ("outcomes", "counters", "is_complete"),
    [
        ({"clean": DONE, "memory": DONE}, "off", True),
        ({"clean": DONE, "memory": RUNS}, "off", False),
        ({"clean": DONE}, "off", False),
        ({"clean": DONE, "memory": WRONG}, "off", True),
        ({"clean": DONE, "memory": DONE}, "auto", False),
        ({"clean": DONE, "memory": DONE, "counters": SKIPPED}, "auto", True),
        ({"clean": DONE, "memory": WRONG, "counters": RUNS}, "auto", False),
    ],
)
def test_what_is_complete_has_an_outcome_for_every_pass_up_to_one_that_failed(
    outcomes: dict[str, PassOutcome], counters: str, is_complete: bool
) -> None:
    measured = result(step_s=0.1, passes="clean,memory", counters=counters, outcomes=outcomes)
    assert measured.is_complete is is_complete
    assert measured.was_cut_off is not is_complete
    stopped = dataclasses.replace(measured, failure=Failure(FailureKind.INTERRUPTED, "stopped by the user"))
    assert (stopped.is_complete, stopped.was_cut_off) == (False, True)
    failed = dataclasses.replace(measured, failure=Failure(FailureKind.OOM, "no memory"))
    assert (failed.is_complete, failed.was_cut_off) == (False, False)


def test_an_estimate_is_complete_with_its_one_pass() -> None:
    made = estimated(10)
    assert made.is_complete
    assert made.record is not None
    made.record.passes = {"estimate": RUNS}
    assert not made.is_complete
