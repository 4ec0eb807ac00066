import example_ledger
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpprof.findings.levels import compute
from dpprof.record.ledger import PhaseMark, StepTimeline
from dpprof.vocabulary.categories import CATEGORIES

MIB = 2**20


def staircase(changes: list[tuple[str, int]], peak_event: int = -1) -> StepTimeline:
    return example_ledger.timeline(
        start={},
        seconds=[float(i) for i in range(len(changes))],
        category=[category for category, _ in changes],
        num_bytes=[MIB * change for _, change in changes],
        moved_to=[None] * len(changes),
        phases=[],
        step_s=float(len(changes)),
        peak_event=peak_event,
    )


@given(st.lists(st.tuples(st.sampled_from(list(CATEGORIES)), st.integers(0, 9)), min_size=1, max_size=80))
def test_what_is_drawn_is_what_was_recorded(targets: list[tuple[str, int]]) -> None:
    """Categories set to some level, one after another; every drawn point has the recorded levels."""
    level = dict.fromkeys(CATEGORIES, 0)
    recorded = [dict(level)]
    changes = []
    for category, target in targets:
        changes.append((category, target - level[category]))
        level[category] = target
        recorded.append(dict(level))
    total = [sum(levels.values()) for levels in recorded]
    assume(any(total))
    peak = max(range(len(total)), key=lambda i: (total[i], -i))
    found = compute(staircase(changes, peak - 1), {}, most=20)
    assert list(found.mib) == [c for c in CATEGORIES if c in found.mib]
    assert max(found.total_mib) == found.total_mib[found.peak_index] == total[peak]
    assert found.total_mib == pytest.approx([sum(column) for column in zip(*found.mib.values(), strict=True)])
    drawn = list(zip(*found.mib.values(), strict=True))
    as_recorded = iter([tuple(levels[c] for c in found.mib) for levels in recorded])
    assert all(point in as_recorded for point in drawn[:-1]), "not the recorded levels in their order"
    assert drawn[-1] == drawn[-2]
    assert min(found.total_mib) == min(total)


def test_bytes_that_go_over_to_another_category_leave_the_total() -> None:
    found = compute(example_ledger.timeline(), {})
    assert found.total_mib == [4, 12, 16, 12, 28, 30, 22, 20, 20, 20]
    assert found.mib["per_sample_gradients"] == [0, 0, 0, 0, 16, 16, 16, 16, 0, 0]
    assert found.mib["summed_gradients"] == [0, 0, 0, 0, 0, 0, 0, 0, 16, 16]
    assert found.peak_index == 5


def test_phases_are_as_wide_as_without_the_ledger_and_gaps_have_no_width() -> None:
    found = compute(example_ledger.timeline(), {"forward": 0.02, "backward": 0.09})
    assert [s.name for s in found.spans] == ["forward", "backward"]
    assert [ms for s in found.spans for ms in (s.start_ms, s.end_ms)] == pytest.approx([0, 20, 20, 110])
    # The first event is a quarter into forward, the peak 8/18 into backward.
    assert found.ms[1] == pytest.approx(5)
    assert found.ms[found.peak_index] == pytest.approx(20 + 90 * 8 / 18)
    assert found.ms[-1] == pytest.approx(110)
    assert found.ms == sorted(found.ms)


def test_a_phase_that_comes_twice_shares_its_time_and_an_untimed_one_keeps_its_own() -> None:
    phases = [
        PhaseMark("clip", 0, 0.1, 0, 3),
        PhaseMark("noise", 0.1, 0.2, 3, 5),
        PhaseMark("clip", 0.2, 0.5, 5, 8),
    ]
    found = compute(example_ledger.timeline(phases=phases), {"clip": 1.0})
    assert [s.end_ms - s.start_ms for s in found.spans] == pytest.approx([250, 100, 750])


def test_too_many_levels_are_thinned_and_the_highest_and_lowest_stay() -> None:
    changes = [("temporary", 1 if i % 2 == 0 else -1) for i in range(20_000)]
    changes[7_001:7_001] = [("noise", 50), ("noise", -50)]
    found = compute(staircase(changes, 7_001), {})
    assert len(found.ms) <= 810
    assert (max(found.total_mib), min(found.total_mib)) == (51, 0)
    assert len(compute(staircase(changes, 7_001), {}, most=50_000).ms) > 20_000


def test_a_step_in_which_nothing_happens() -> None:
    found = compute(staircase([]), {})
    assert found.total_mib == [0, 0]
    assert found.mib == {}
