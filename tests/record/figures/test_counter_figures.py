import example_ledger
import pytest
from record_metrics import metrics

from dpprof.config.counter_metrics import DRAM_PCT, DRAM_READ, DRAM_WRITTEN, L2_HITS, L2_MISSES, L2_READ
from dpprof.record.counters import CounterResult, CounterRow
from dpprof.record.record import Record

MIB = 2**20


def counted() -> list[CounterRow]:
    """Three kernels: 3 ms in forward, 1 ms in backward, and 1 ms outside the phases."""
    gemm = {DRAM_READ: 6 * MIB, DRAM_WRITTEN: 2 * MIB, DRAM_PCT: 40.0, L2_READ: 2**16, "x__y.max": 7.0}
    copy = {DRAM_READ: 4 * MIB, DRAM_WRITTEN: 4 * MIB, DRAM_PCT: 80.0, L2_READ: 2**15, "x__y.max": 9.0}
    return [
        CounterRow("gemm", "matrix_product", "forward", 2, 3e-3, gemm),
        CounterRow("copy", "copy", "backward", 1, 1e-3, copy),
        CounterRow("copy", "copy", None, 1, 1e-3, {DRAM_READ: MIB}),
    ]


def test_counters_by_step_phase_and_class() -> None:
    found = metrics(Record({}, {}, counters=CounterResult(counted())))
    assert found["counters/kernel_ms"] == pytest.approx(5)
    assert found["counters/kernel_launches"] == 4
    assert found["counters/dram_read_mib"] == pytest.approx(11)
    # The sum of bytes over the sum of times, not the mean of the kernels' throughputs.
    assert found["counters/dram_read_gib_per_s"] == pytest.approx(11 / 1024 / 5e-3)
    assert "counters/dram_written_mib" not in found  # one kernel lacks it
    assert found["counters/outside_phases_pct"] == pytest.approx(20)
    assert found["counters/forward/dram_written_mib"] == pytest.approx(2)
    assert found["counters/forward/l2_read_mib"] == pytest.approx(2)  # 65,536 sectors of 32 bytes
    assert found["counters/backward/dram_pct_of_peak"] == 80
    assert found["counters/backward/x__y.max"] == 9
    assert found["counters/class/copy/dram_read_mib"] == pytest.approx(5)
    assert found["counters/class/copy/kernel_launches"] == 2
    assert not any(name.startswith("counters/None") for name in found)


def test_hit_rates_are_hits_over_lookups() -> None:
    rows = [
        CounterRow("a", "copy", "forward", 1, 1.0, {L2_HITS: 10, L2_MISSES: 0}),
        CounterRow("b", "copy", "forward", 1, 9.0, {L2_HITS: 0, L2_MISSES: 2}),
    ]
    found = metrics(Record({}, {}, counters=CounterResult(rows)))
    assert found["counters/l2_hit_pct"] == found["counters/forward/l2_hit_pct"] == pytest.approx(1000 / 12)
    assert "counters/l1_hit_pct" not in found


def test_dram_bytes_beside_the_ledgers() -> None:
    """DRAM moves 16 MiB, 8 of them in forward; the ledger's operators 42 and 14."""
    rows = [row for row in counted() if row.phase]
    found = metrics(Record({}, {}, counters=CounterResult(rows), ledger=example_ledger.ledger()))
    assert found["counters/dram_to_ledger_ratio"] == pytest.approx(16 / 42)
    assert found["counters/forward/dram_to_ledger_ratio"] == pytest.approx(8 / 14)
