import dataclasses

import example_ledger
import pytest

from dpprof.ledger_data import TrafficRow
from dpprof.record import Memory, Record
from dpprof.reports.tables import LedgerTables, MovedRow, compute

MIB = 2**20


def tables(record: Record) -> LedgerTables:
    assert record.ledger is not None
    return compute(record, record.ledger, example_ledger.timeline())


def test_the_peak_with_what_the_allocator_had_beyond_it() -> None:
    found = tables(example_ledger.record())
    assert (found.peak_mib, found.peak_phase) == (30, "backward")
    assert [(share.category, round(share.mib, 1)) for share in found.at_peak] == [
        ("per_sample_gradients", 16),
        ("activations", 8),
        ("parameters", 4),
        ("temporary", 2),
        ("untracked", 0.3),
    ]
    assert found.at_peak[0].pct == pytest.approx(100 * 16 / 30.3, rel=1e-5)
    assert sum(share.pct for share in found.at_peak) == pytest.approx(100)
    assert all(share.meaning for share in found.at_peak)


@pytest.mark.parametrize(
    ("allocator", "pct", "doubt"),
    [
        (None, None, None),
        (30 * MIB, 0, None),
        (30 * MIB * 100 // 98, 2, None),
        (40 * MIB, 25, "sees 25.0 % less than the allocator's peak (limit 2 %)"),
        (24 * MIB, -25, "sees 25.0 % more than the allocator's peak (limit 2 %)"),
    ],
)
def test_doubt_past_two_percent(allocator: int | None, pct: float | None, doubt: str | None) -> None:
    found = tables(example_ledger.record(memory=Memory(peak_allocated=allocator)))
    assert found.unexplained_pct == (None if pct is None else pytest.approx(pct, abs=1e-5))
    assert (doubt in found.doubt) if doubt and found.doubt else found.doubt is doubt
    has_untracked = any(share.category == "untracked" for share in found.at_peak)
    assert has_untracked == (allocator is not None and allocator > 30 * MIB)


def test_phases_beside_the_allocators_own_peaks() -> None:
    found = tables(example_ledger.record())
    assert [(p.phase, p.peak_mib, p.allocator_mib, p.largest, p.ms) for p in found.phases] == [
        ("forward", 16, 16, "activations", 50),
        ("backward", 30, 31, "per_sample_gradients", 100),
    ]
    unknown = tables(example_ledger.record(memory=Memory(), phase_s={}))
    assert [(p.allocator_mib, p.ms) for p in unknown.phases] == [(None, None)] * 2


def test_bytes_moved_by_phase_and_by_class() -> None:
    found = tables(example_ledger.record())
    assert found.by_phase == [
        MovedRow("forward", 10, 4, 3),
        MovedRow("backward", 10, 16, 8),
        MovedRow("between phases", 1, 1, 0),
    ]
    assert found.by_class == [
        MovedRow("matrix_product", 16, 18, 11),
        MovedRow("elementwise", 4, 2, 0),
        MovedRow("copy", 1, 1, 0),
    ]
    assert found.moved == MovedRow("step", 21, 21, 11)
    assert found.moved.intensity == 11e9 / (42 * MIB)


def test_a_phase_that_moves_nothing_has_no_intensity() -> None:
    ledger = example_ledger.ledger(
        traffic=[TrafficRow("aten::mm", "matrix_product", "backward", 1, 8, 8, 32)]
    )
    forward, backward = tables(example_ledger.record(ledger=ledger)).by_phase
    assert (forward.moved_mib, forward.intensity) == (0, None)
    assert backward.intensity == 2


def test_tensors_say_what_they_belong_to() -> None:
    rows = [dataclasses.astuple(row) for row in tables(example_ledger.record()).tensors]
    assert rows == [
        (16, "per_sample_gradients", "head.weight", "2 x 2048 x 1024", "float32", "backward", "aten::bmm"),
        (8, "activations", "blocks.0.mlp_in", "2 x 1024 x 1024", "float32", "forward", "aten::addmm"),
        (4, "parameters", "head.weight", "1024 x 1024", "float32", "before the step", "aten::empty"),
        (2, "temporary", "", "scalar", "float32", "backward", "aten::mul"),
    ]
