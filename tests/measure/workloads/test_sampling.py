from itertools import islice

import pytest
import torch
from example_config import experiment

from dpprof.config.experiment import largest_batch
from dpprof.measure.workloads.sampling import batch_sizes, num_samples, sampled


def sizes(count: int, *, is_timed: bool, **changes: object) -> list[int]:
    config = experiment(poisson_sampling=True, **changes)
    return list(islice(batch_sizes(config, is_timed=is_timed), count))


def test_timed_batches_vary_around_the_batch_size_after_a_full_and_an_empty_one() -> None:
    full, empty, *drawn = sizes(20_002, is_timed=True, batch_size=4)
    assert (full, empty) == (4, 0)
    assert sum(drawn) / len(drawn) == pytest.approx(4, rel=0.02)
    variance = sum((size - 4) ** 2 for size in drawn) / len(drawn)
    assert variance == pytest.approx(4, rel=0.05), "of a Poisson distribution it is the mean"
    assert drawn.count(0) / len(drawn) == pytest.approx(0.0183, rel=0.2), "exp(-4)"


def test_the_same_seed_draws_the_same_batches_for_every_trainer() -> None:
    ours = sizes(50, is_timed=True, trainer="DPSGDTrainer", seed=3)
    assert ours == sizes(50, is_timed=True, trainer="StandardTrainer", seed=3)
    assert ours != sizes(50, is_timed=True, seed=4)


@pytest.mark.parametrize("warmup_steps", [3, 5])
def test_where_memory_is_looked_at_batches_are_the_largest_of_the_timed_ones(warmup_steps: int) -> None:
    changes = {"batch_size": 4, "warmup_steps": warmup_steps, "measured_steps": 10}
    timed = sizes(warmup_steps + 10, is_timed=True, **changes)[warmup_steps:]
    assert sizes(4, is_timed=False, **changes) == [4, 0, max(timed), max(timed)]


def test_an_estimate_has_the_batch_that_few_steps_exceed() -> None:
    largest = largest_batch(4, 1e-3)
    assert sizes(4, is_timed=False, batch_size=4, passes="estimate", poisson_tail=1e-3) == [4, 0, 6, largest]


def test_batches_of_any_size_are_cut_from_the_workloads_own() -> None:
    numbers = iter(range(100))

    def batches():  # type: ignore[no-untyped-def]
        while True:
            rows = torch.tensor([[next(numbers)] for _ in range(3)])
            yield {"rows": rows, "scale": torch.tensor(2.0)}, rows[:, 0]

    found = list(islice(sampled(batches(), [2, 0, 7, 3]), 4))
    assert [num_samples(batch) for batch in found] == [2, 0, 7, 3]
    (inputs, targets) = found[2]
    assert targets.tolist() == [6, 7, 8, 9, 10, 11, 12]
    assert inputs["scale"] == 2.0, "it has no samples to cut"
    assert inputs["rows"].shape == (7, 1)
    assert inputs["rows"].untyped_storage().nbytes() == 7 * 8, "nothing of what was cut off is kept"
