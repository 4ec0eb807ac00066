import pytest
from example_results import comparison, result

from dpprof.findings.comparison.growth import growth, lines
from dpprof.record.figures.names import PEAK, STEP
from dpprof.record.record import Failure, FailureKind


def test_a_straight_line_is_found_and_nothing_is_off() -> None:
    cells = [result(step_s=0.1 * b, peak_mib=100 + 7 * b, batch_size=b, seq_len=64) for b in (2, 4, 8)]
    (memory,) = lines(comparison(*cells), PEAK, "batch_size")
    assert (memory.x, memory.y) == ([2, 4, 8], [114, 128, 156])
    assert (memory.fixed, memory.slope) == pytest.approx((100, 7))
    assert (memory.trainer, memory.model, memory.place) == ("StandardTrainer", "tiny", "sequence 64")
    (time,) = lines(comparison(*cells), STEP, "batch_size")
    assert time.slope == pytest.approx(100), "ms per sample"
    assert time.fixed == 0, "what the fit rounds is not told as a figure"


def test_along_the_sequence_figures_are_per_token_of_the_step() -> None:
    cells = [result(step_s=0.002 * t, peak_mib=10 + t, batch_size=4, seq_len=t) for t in (64, 128, 192)]
    found = comparison(*cells)
    (memory,) = lines(found, PEAK, "seq_len")
    assert (memory.fixed, memory.slope) == pytest.approx((10, 1 / 4)), "4 samples of one token more"
    (time,) = lines(found, STEP, "seq_len")
    assert time.slope == pytest.approx(2 / 4)


def test_a_step_of_several_batches_has_more_samples_but_no_more_memory() -> None:
    cells = [
        result(step_s=0.3 * b, peak_mib=5 * b, batch_size=b, seq_len=64, accumulation_steps=3)
        for b in (2, 4, 6)
    ]
    found = comparison(*cells)
    assert lines(found, STEP, "batch_size")[0].slope == pytest.approx(100)
    assert lines(found, PEAK, "batch_size")[0].slope == pytest.approx(5)


def test_two_step_times_make_no_line_as_they_are_not_exact() -> None:
    found = comparison(*(result(step_s=0.1 * b, peak_mib=5 * b, batch_size=b) for b in (2, 4)))
    assert lines(found, STEP, "batch_size") == []
    (memory,) = lines(found, PEAK, "batch_size")
    assert memory.x == [2, 4]


def test_weights_of_other_types_are_on_lines_of_their_own() -> None:
    cells = [
        result(peak_mib=10 * b, step_s=0.1, batch_size=b, weights={dtype: 1})
        for b, dtype in ((1, "bf16"), (2, "bf16"), (4, "fp32"), (8, "fp32"))
    ]
    found = lines(comparison(*cells), PEAK, "batch_size")
    assert [line.x for line in found] == [[1, 2], [4, 8]]
    assert [line.place.rpartition(", ")[2] for line in found] == ["weights in bf16", "weights in fp32"]


def test_cells_that_differ_in_something_else_or_failed_are_on_no_line() -> None:
    found = comparison(
        result(step_s=0.1, peak_mib=1, batch_size=1),
        result(step_s=0.1, peak_mib=2, batch_size=2, precision="bf16"),
        result(batch_size=4, failure=Failure(FailureKind.OOM, "x")),
        result("DPSGDTrainer", step_s=0.1, peak_mib=1, batch_size=2),
    )
    assert list(growth(found)) == []


def test_poisson_sampled_batches_are_on_no_line() -> None:
    """Their memory is that of the largest batch that was timed, whatever their batch size says."""
    cells = [result(step_s=0.1, peak_mib=size, batch_size=size, poisson_sampling=True) for size in (2, 4)]
    assert lines(comparison(*cells), PEAK, "batch_size") == []
