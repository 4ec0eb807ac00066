import example_counters
import example_ledger
import pytest

from dpprof.findings.counter_tables import CountedRow, CounterTables, compute
from dpprof.record.counters import CounterResult, CounterRow
from dpprof.record.figures.counters import L1_STORE, L2_READ

PHASES = ["forward", "backward", "optimizer_step", "between phases"]


def tables(result: CounterResult | None = None, *, ledger: bool = True) -> CounterTables:
    return compute(result or example_counters.counters(), example_ledger.ledger() if ledger else None)


def by_name(rows: list[CountedRow]) -> dict[str, CountedRow]:
    return {row.name: row for row in rows}


def test_a_phase_holds_the_sums_of_its_kernels_and_rates_over_them() -> None:
    found = tables()
    assert [row.name for row in found.by_phase] == [row.phase for row in found.by_phase] == PHASES
    forward = by_name(found.by_phase)["forward"]
    figures = forward.figures
    assert (figures.kernel_launches, figures.kernel_ms, figures.dram_mib) == (4, 2.0, 8)
    assert figures.dram_gib_per_s == pytest.approx(8 / 1024 / 0.002)
    assert figures.dram_pct_of_peak == 40, "60 % and 20 %, a millisecond each"
    assert figures.values[example_counters.SM_PCT] == 75.0
    assert forward.ledger_mib == 14
    assert figures.dram_to_ledger == pytest.approx(8 / 14)
    optimizer = by_name(found.by_phase)["optimizer_step"]
    assert (optimizer.ledger_mib, optimizer.figures.dram_to_ledger) == (0, None)
    assert found.step.ledger_mib == 42
    assert found.step.figures.dram_to_ledger == pytest.approx(28 / 42)


def test_classes_and_kernels_come_with_the_most_traffic_first() -> None:
    found = tables()
    assert [(row.name, row.figures.dram_mib) for row in found.by_class] == [
        ("matrix_product", 22),
        ("elementwise", 2),
        ("optimizer", 2),
        ("copy", 2),
    ]
    assert [(row.name, row.phase, row.kernel_class, row.figures.dram_mib) for row in found.kernels] == [
        (example_counters.GEMM, "backward", "matrix_product", 16),
        (example_counters.GEMM, "forward", "matrix_product", 6),
        (example_counters.ADD, "forward", "elementwise", 2),
        (example_counters.ADD, "optimizer_step", "optimizer", 2),
        ("Memcpy", "between phases", "copy", 2),
    ]
    assert all(row.ledger_mib is None for row in [*found.by_class, *found.kernels])
    rows = [CounterRow(name, "copy", None, 1, s, {}) for name, s in (("short", 0.1), ("long", 0.2))]
    rows.append(example_counters.row("counted", "copy", None, 1, 1, 0, 0))
    assert [row.name for row in tables(CounterResult(rows)).kernels] == ["counted", "long", "short"]


def test_what_was_not_counted_is_none() -> None:
    optimizer = by_name(tables().by_phase)["optimizer_step"]
    assert optimizer.figures.dram_mib == 2
    for value in (*map(optimizer.figures.moved_mib, (L2_READ, L1_STORE)), optimizer.figures.dram_pct_of_peak):
        assert value is None
    assert tables().step.figures.moved_mib(L2_READ) is None, "what a kernel lacks the step lacks"
    assert example_counters.SM_PCT not in optimizer.figures.values
    bare = tables(CounterResult([CounterRow("k", "copy", "forward", 1, 0.0, {})]), ledger=False)
    for row in (bare.step, *bare.by_phase, *bare.kernels):
        assert (row.figures.dram_mib, row.figures.dram_gib_per_s, row.ledger_mib) == (None,) * 3
