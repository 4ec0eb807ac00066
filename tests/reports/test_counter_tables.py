import example_counters
import example_ledger
import pytest
from record_metrics import metrics

from dpprof.record.counters import CounterResult, CounterRow
from dpprof.reports.counter_tables import CountedRow, CounterTables, compute


def tables(result: CounterResult | None = None, *, ledger: bool = True) -> CounterTables:
    return compute(result or example_counters.counters(), example_ledger.ledger() if ledger else None)


def by_name(rows: list[CountedRow]) -> dict[str, CountedRow]:
    return {row.name: row for row in rows}


def test_phases_come_as_a_step_goes_through_them() -> None:
    assert [r.name for r in tables().by_phase] == ["forward", "backward", "optimizer_step", "between phases"]
    assert [r.phase for r in tables().by_phase] == ["forward", "backward", "optimizer_step", "between phases"]


def test_a_phase_holds_the_sums_of_its_kernels_and_rates_over_them() -> None:
    forward = by_name(tables().by_phase)["forward"]
    assert forward == CountedRow(
        name="forward",
        kernel_class="",
        phase="forward",
        launches=4,
        kernel_ms=2.0,
        dram_read_mib=6.0,
        dram_written_mib=2.0,
        dram_gib_per_s=8 / 1024 / 0.002,
        dram_pct_of_peak=40.0,  # 60 % and 20 %, a millisecond each
        l2_read_mib=2.0,
        l2_written_mib=1.0,
        l1_load_mib=8.0,
        l1_store_mib=4.0,
        extra={example_counters.SM_PCT: 75.0},
        ledger_mib=14.0,
        dram_to_ledger=8 / 14,
    )
    assert forward.dram_mib == 8


def test_a_throughput_is_no_mean_of_throughputs() -> None:
    rows = [
        example_counters.row("fast", "copy", "forward", 1, ms=1, read=10, written=0),
        example_counters.row("slow", "copy", "forward", 1, ms=9, read=10, written=0),
    ]
    assert tables(CounterResult(rows)).step.dram_gib_per_s == pytest.approx(20 / 1024 / 0.010)


def test_the_step_holds_everything() -> None:
    step = tables().step
    assert (step.name, step.launches) == ("step", 12)
    assert step.kernel_ms == pytest.approx(8.0)
    assert (step.dram_read_mib, step.dram_written_mib) == (18, 10)
    assert step.dram_gib_per_s == pytest.approx(28 / 1024 / 0.008)
    assert step.ledger_mib == 42
    assert step.dram_to_ledger == pytest.approx(28 / 42)


def test_classes_and_kernels_come_with_the_most_traffic_first() -> None:
    found = tables()
    assert [(r.name, r.dram_mib) for r in found.by_class] == [
        ("matrix_product", 22),
        ("elementwise", 2),
        ("optimizer", 2),
        ("copy", 2),
    ]
    assert [(r.name, r.phase, r.kernel_class, r.dram_mib) for r in found.kernels] == [
        (example_counters.GEMM, "backward", "matrix_product", 16),
        (example_counters.GEMM, "forward", "matrix_product", 6),
        (example_counters.ADD, "forward", "elementwise", 2),
        (example_counters.ADD, "optimizer_step", "optimizer", 2),
        ("Memcpy", "between phases", "copy", 2),
    ]
    assert all(row.ledger_mib is None for row in [*found.by_class, *found.kernels])


def test_what_was_not_counted_is_none() -> None:
    optimizer = by_name(tables().by_phase)["optimizer_step"]
    assert optimizer.dram_mib == 2
    for value in (optimizer.l2_read_mib, optimizer.l1_store_mib, optimizer.dram_pct_of_peak):
        assert value is None
    assert tables().step.l2_read_mib is None, "what a kernel lacks the step lacks"
    assert optimizer.extra == {}
    bare = tables(CounterResult([CounterRow("k", "copy", "forward", 1, 0.0, {})]), ledger=False)
    for row in (bare.step, *bare.by_phase, *bare.kernels):
        assert (row.dram_read_mib, row.dram_mib, row.dram_gib_per_s, row.ledger_mib) == (None,) * 4
    assert bare.step.dram_to_ledger is None


def test_kernels_without_dram_traffic_come_last_the_longest_first() -> None:
    rows = [CounterRow(name, "copy", None, 1, s, {}) for name, s in (("short", 0.1), ("long", 0.2))]
    rows.append(example_counters.row("counted", "copy", None, 1, 1, 0, 0))
    assert [row.name for row in tables(CounterResult(rows)).kernels] == ["counted", "long", "short"]


def test_a_phase_in_which_the_ledger_moved_nothing_has_no_ratio() -> None:
    optimizer = by_name(tables().by_phase)["optimizer_step"]
    assert (optimizer.ledger_mib, optimizer.dram_to_ledger) == (0, None)


def test_settings_and_what_is_missing_are_kept() -> None:
    assert tables().settings["cache_control"] == "none"
    assert tables().missing == {"sm__cycles_active.sum": "this GPU has no such metric"}


def test_the_tables_say_what_the_metrics_say() -> None:
    figures = metrics(example_ledger.record(counters=example_counters.counters()))
    found = tables()
    for prefix, row in [
        ("counters", found.step),
        *((f"counters/{row.name}", row) for row in found.by_phase[:-1]),
        *((f"counters/class/{row.name}", row) for row in found.by_class),
    ]:
        for metric, value in {
            "kernel_ms": row.kernel_ms,
            "dram_read_mib": row.dram_read_mib,
            "l2_read_mib": row.l2_read_mib,
            "dram_pct_of_peak": row.dram_pct_of_peak,
            "dram_to_ledger_ratio": row.dram_to_ledger,
        }.items():
            expected = None if value is None else pytest.approx(value)
            assert figures.get(f"{prefix}/{metric}") == expected, (prefix, metric)
