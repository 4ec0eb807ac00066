from pathlib import Path
from typing import Any

import pytest
import torch
from example_runs import known, measured
from hypothesis import given
from hypothesis import strategies as st

from dpprof.measure.passes.clean import KeptLosses
from dpprof.measure.passes.events import Allocation, Recording, Span
from dpprof.measure.passes.memory import AllocatedBytes, note_peaks
from dpprof.record.record import Memory
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS


def recording(events: list[tuple[int, int]], phases: list[Span] | None = None) -> Recording:
    return Recording([], phases or [], [], [Allocation(at, size, thread=1) for at, size in events])


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-1_000, 1_000)), max_size=30),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 1_000),
)
def test_the_levels_within_any_span(events: list[tuple[int, int]], one: int, other: int, base: int) -> None:
    """That of its start is the sum of what happened until then."""
    events = sorted(events, key=lambda event: event[0])
    start, end = min(one, other), max(one, other)
    last_before = sum(at <= start for at, _ in events)
    ends = [i for i in range(last_before, len(events)) if events[i][0] <= end]
    sums = [base + sum(size for _, size in events[: i + 1]) for i in [last_before - 1, *ends]]
    levels, span = AllocatedBytes(recording(events), base=base), Span("step", start, end)
    assert levels.within(span) == sums
    assert (levels.at(start), levels.at(end), levels.peak(span)) == (sums[0], sums[-1], max(sums))


def test_the_peak_of_a_phase_is_over_all_its_occurrences_within_the_steps() -> None:
    spans = {"forward": [(0, 5), (10, 20)], "clip": [(20, 22), (45, 50)], "backward": [(30, 40)]}
    phases = [Span(name, *ends) for name, of_name in spans.items() for ends in of_name]
    steps = [Span("training_step", 10, 25), Span("training_step", 26, 50)]
    levels = AllocatedBytes(recording([(1, 900), (6, -800), (15, 50), (35, 20), (46, 30)], phases), base=0)
    memory = Memory()
    note_peaks(memory, levels, phases, steps, is_headline=False)
    assert memory == Memory(phase_peak={"forward": 150, "clip": 200, "backward": 170})


@pytest.mark.parametrize("trainer", DEFAULT_TRAINERS)
def test_what_savings_save_is_what_the_lean_loop_does_without(tmp_path: Path, trainer: str) -> None:
    """By the allocator: the documented loop's peak less what all savings save is the lean loop's peak."""
    few: dict[str, Any] = {"trainer": trainer, "batch_size": 2, "seq_len": 32, "passes": "clean,memory"}
    few |= {"num_layers": 1, "warmup_steps": 1, "measured_steps": 1}
    documented, lean = (measured(tmp_path / loop, **few, loop=loop).memory for loop in ("documented", "lean"))
    together = "all" if "all" in documented.saved else "outputs"
    assert known(documented.peak_allocated) - documented.saved[together] == lean.peak_allocated
    assert documented.saved["outputs"] == 4 * 2 * 32 * 1000, "the logits"
    assert lean.saved == {}


def test_losses_that_are_not_finite_are_counted_once() -> None:
    kept = KeptLosses()
    kept.losses(torch.tensor([1.0, torch.nan, torch.inf]))
    kept.losses(torch.tensor([-torch.inf, 0.0, 3e38]))
    assert kept.count_nonfinite() == 3
    assert kept.count_nonfinite() == 0, "they are let go of"


def test_neither_the_graph_nor_a_larger_storage_is_kept() -> None:
    weight = torch.ones(4, 1000, requires_grad=True)
    kept = KeptLosses()
    kept.losses((2 * weight)[:, 0])
    kept.losses((2 * weight).sum(dim=1))
    for losses in kept._losses:
        assert not losses.requires_grad
        assert losses.untyped_storage().nbytes() == 4 * 4
