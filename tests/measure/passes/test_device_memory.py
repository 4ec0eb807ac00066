"""Steps on the simulated allocator, against arithmetic."""

from dpprof.measure.passes.device_memory import AllocatedSteps, Change
from dpprof.vocabulary.units import MIB

# A parameter of 30 MiB; in each step an activation, then a gradient that takes the last one's place.
BEFORE: list[Change] = [(0, 30 * MIB), (1, 40 * MIB), (2, 30 * MIB), (1, 0)]
STEP: list[Change] = [(3, 40 * MIB), (2, 0), (4, 30 * MIB), (3, 0)]


def test_the_peak_is_the_last_steps() -> None:
    steps = AllocatedSteps([*BEFORE, *STEP], len(BEFORE))
    assert steps.on_device().allocated == 100 * MIB
    assert (
        AllocatedSteps([(0, 200 * MIB), (0, 0), *BEFORE, *STEP], len(BEFORE) + 2).on_device().allocated
        == 100 * MIB
    )


def test_a_repeated_step_frees_what_the_one_before_left() -> None:
    """Without that, each would leave 30 MiB more."""
    steps = AllocatedSteps([*BEFORE, *STEP], len(BEFORE))
    assert steps.on_device(repeats=5) == steps.on_device()
    assert steps.segments().reserved == 100 * MIB


def test_what_changes_its_size_is_allocated_anew() -> None:
    steps = AllocatedSteps([(0, 30 * MIB), (0, 50 * MIB), (0, 0), (1, 40 * MIB)], 0)
    assert (steps.on_device().allocated, steps.on_device().reserved) == (50 * MIB, 80 * MIB)


def test_a_smaller_device_runs_the_step_where_segments_are_given_back() -> None:
    """A block of 60 MiB finds no room in one of 50 MiB, which is given back if the device is full."""
    changes: list[Change] = [(0, 50 * MIB), (0, 0), (1, 60 * MIB), (1, 0)]
    found = AllocatedSteps(changes, 0).segments()
    assert found.reserved == 110 * MIB
    assert 60 * MIB <= found.least <= 60.6 * MIB


def test_expandable_segments_leave_less_unused() -> None:
    changes: list[Change] = [(0, 50 * MIB), (0, 0), (1, 60 * MIB), (1, 0)]
    assert AllocatedSteps(changes, 0).segments().expandable == 60 * MIB


def test_a_repeated_step_frees_what_a_smaller_one_left() -> None:
    """The step before had a smaller batch, and left a gradient of another size."""
    steps = AllocatedSteps([(0, 30 * MIB), (2, 20 * MIB), *STEP], 2)
    assert steps.on_device(repeats=5).allocated == 100 * MIB
    assert steps.on_device(repeats=5).reserved == steps.on_device(repeats=1).reserved


class OnSomeDevices(AllocatedSteps):
    """Steps that run on some devices alone, in MiB, as segments are given back in another order."""

    def __init__(self, *failing: range) -> None:
        super().__init__([(0, 100 * MIB), (0, 0), (1, 200 * MIB), (1, 0)], 0)
        self.failing = failing

    def _runs(self, capacity: int) -> bool:
        return not any(capacity // MIB in failing for failing in self.failing)


def test_the_smallest_device_is_one_that_also_runs_with_more_memory() -> None:
    assert 230 * MIB <= OnSomeDevices(range(200, 230)).segments().least <= 231 * MIB
    assert 256 * MIB <= OnSomeDevices(range(200, 250), range(253, 256)).segments().least <= 257 * MIB
    assert OnSomeDevices(range(200, 300)).segments().least == 300 * MIB
