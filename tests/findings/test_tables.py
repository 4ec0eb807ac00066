import dataclasses

import example_ledger
import pytest
from example_ledger import tables

from dpprof.config.flat import to_flat
from dpprof.findings.tables import MovedRow
from dpprof.pages.run_tables import norms
from dpprof.record.ledger import TrafficRow
from dpprof.record.record import Memory, PassOutcome, PassStatus
from dpprof.vocabulary.theory import LayerRow

MIB = 2**20


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
    ("allocator", "is_estimate", "beyond", "origin", "doubt"),
    [
        (None, False, 0, "this comes from the ledger alone, as the allocator's own peak is not known", None),
        (24 * MIB, False, 0, "the ledger tells it; the allocator's own peak is 24.00 MiB", "25.0 % more"),
        (30 * MIB, False, 0, "the ledger sees all of it", None),
        (30 * MIB * 100 // 98, False, 0.61, "the ledger sees 30.00 MiB of it, 0.61 MiB is untracked", None),
        (40 * MIB, False, 10, "the ledger sees 30.00 MiB of it, 10.0 MiB is untracked", "25.0 % less"),
        (30 * MIB + 512, False, 0, "the ledger sees 30.00 MiB of it, 0.5 KiB is untracked", None),
        (30 * MIB, True, 0, "tensors take all of it", None),
        (38 * MIB, True, 8, "tensors take 30.00 MiB of it, the allocator adds 8.0 MiB", None),
    ],
)
def test_what_is_held_at_the_peak_is_the_sum_of_its_shares_and_says_what_it_rests_on(
    allocator: int | None, is_estimate: bool, beyond: float, origin: str, doubt: str | None
) -> None:
    passes = {"estimate" if is_estimate else "clean": PassOutcome(PassStatus.FINISHED)}
    config = to_flat(example_ledger.CONFIG) | ({"passes": "estimate"} if is_estimate else {})
    memory = Memory(peak_allocated=allocator)
    found = tables(example_ledger.record(config=config, memory=memory, passes=passes))
    assert found.held_mib == pytest.approx(30 + beyond, abs=3e-3)
    assert found.held_mib == pytest.approx(sum(share.mib for share in found.at_peak))
    has_untracked = any(share.category == "untracked" for share in found.at_peak)
    assert has_untracked == (allocator is not None and allocator > 30 * MIB)
    assert found.origin == origin
    assert (found.doubt is not None) == (doubt is not None)
    assert not doubt or f"sees {doubt} than the allocator's peak (limit 2 %)" in str(found.doubt)


def test_of_the_tensors_the_shares_are_those_of_the_ledgers_peak() -> None:
    """A chart of the ledger's bytes is not labelled with what the ledger does not see."""
    found = tables(example_ledger.record(memory=Memory(peak_allocated=90 * MIB)))
    assert found.at_peak[0].category == "untracked"
    assert found.seen[0].category == "per_sample_gradients"
    assert found.seen[0].pct == pytest.approx(100 * 16 / 30)
    assert sum(share.pct for share in found.seen) == pytest.approx(100)


def test_phases_beside_the_allocators_own_peaks() -> None:
    found = tables(example_ledger.record())
    assert [(p, f.peak_mib, f.allocator_peak_mib, largest, f.ms) for p, f, largest in found.phases] == [
        ("forward", 16, 16, "activations", 50),
        ("backward", 30, 31, "per_sample_gradients", 100),
    ]
    unknown = tables(example_ledger.record(memory=Memory(), phase_s={}))
    assert [(p.figures.allocator_peak_mib, p.figures.ms) for p in unknown.phases] == [(None, None)] * 2


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
    assert found.by_both["forward"] == [MovedRow("matrix_product", 6, 2, 3), MovedRow("elementwise", 4, 2, 0)]
    assert found.moved == MovedRow("step", 21, 21, 11)
    assert found.moved.intensity == 11e9 / (42 * MIB)


def test_layers_of_one_shape_and_form_share_a_row() -> None:
    layers = [
        LayerRow(name, 2, 1, 64, rows, 32, norm=norm, norm_flops=3 * 10**9, norm_bytes=MIB)
        for name, rows, norm in (("a", 8, "gram"), ("b", 16, "explicit"), ("c", 8, "gram"), ("d", 8, None))
    ]
    found = tables(example_ledger.record(ledger=example_ledger.ledger(layers=layers)))
    assert [[row.name for row in alike] for alike in found.norms] == [["a", "c"], ["b"]]
    first, second = norms(found).rows
    assert first == ["a and 1 like it", "64", "8 x 32", "gram", "3.00", "1.00", "0.00"]
    assert second[0] == "b"


def test_a_phase_that_moves_nothing_has_no_intensity() -> None:
    ledger = example_ledger.ledger(
        traffic=[TrafficRow("aten::mm", "matrix_product", "backward", 1, 8, 8, 32)]
    )
    forward, backward = tables(example_ledger.record(ledger=ledger)).by_phase
    assert (forward.moved_mib, forward.intensity) == (0, None)
    assert backward.intensity == 2


def test_tensors_say_what_they_belong_to() -> None:
    rows = [tuple(row) for row in tables(example_ledger.record()).tensors]
    assert rows == [
        (16, "per_sample_gradients", "head.weight", "2 x 2048 x 1024", "float32", "backward", "bmm"),
        (8, "activations", "blocks.0.mlp_in", "2 x 1024 x 1024", "float32", "forward", "addmm"),
        (4, "parameters", "head.weight", "1024 x 1024", "float32", "before the step", "empty"),
        (2, "temporary", "", "scalar", "float32", "backward", "mul"),
    ]
    timeline = example_ledger.timeline()
    made = [dataclasses.replace(storage, phase=None) for storage in timeline.storages[:2]]
    timeline.storages[:2] = made
    found = tables(example_ledger.record(), timeline).tensors
    assert [row.phase for row in found] == ["backward", "between phases", "before the step", "backward"]
