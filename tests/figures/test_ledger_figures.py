import example_ledger
import pytest
from record_metrics import metrics

from dpprof.record.record import Memory
from dpprof.vocabulary.categories import CATEGORIES, OF_RANKS

MIB = 2**20


def test_the_ledgers_figures() -> None:
    found = metrics(example_ledger.record())
    ours = {
        name: value
        for name, value in found.items()
        if name.startswith(
            ("io/", "flops/", "ledger/", "memory/at_peak/", "memory/peak_in_", "overhead/ledger_step")
        )
    }
    untracked = (3 * MIB // 10) / MIB
    nothing = {f"memory/at_peak/{category}_mib": 0.0 for category in CATEGORIES if category not in OF_RANKS}
    assert ours == pytest.approx(
        nothing
        | {
            "ledger/peak_mib": 30,
            "ledger/unexplained_pct": 100 * untracked / (30 + untracked),
            "overhead/ledger_step_ratio": 3,
            "memory/at_peak/parameters_mib": 4,
            "memory/at_peak/activations_mib": 8,
            "memory/at_peak/per_sample_gradients_mib": 16,
            "memory/at_peak/temporary_mib": 2,
            "memory/at_peak/untracked_mib": untracked,
            "memory/peak_in_forward_mib": 16,
            "memory/peak_in_backward_mib": 30,
            "io/forward/read_mib": 10,
            "io/forward/written_mib": 4,
            "io/backward/read_mib": 10,
            "io/backward/written_mib": 16,
            "io/total_mib": 42,
            "io/arithmetic_intensity": 11e9 / (42 * MIB),
            "flops/forward": 3e9,
            "flops/backward": 8e9,
            "flops/total": 11e9,
        }
    )


def test_the_ledger_without_anything_to_compare_it_with() -> None:
    found = metrics(
        example_ledger.record(memory=Memory(), step_s=[], ledger=example_ledger.ledger(traffic=[]))
    )
    assert "ledger/unexplained_pct" not in found
    assert "overhead/ledger_step_ratio" not in found
    assert "memory/at_peak/untracked_mib" not in found
    assert "io/arithmetic_intensity" not in found
    assert found["io/total_mib"] == 0


def test_a_ledger_that_saw_more_than_the_allocator_has_nothing_untracked() -> None:
    found = metrics(example_ledger.record(memory=Memory(peak_allocated=24 * MIB)))
    assert found["ledger/unexplained_pct"] == -25
    assert "memory/at_peak/untracked_mib" not in found
