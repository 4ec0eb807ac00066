"""Hardware counters written for the tests, not measured: small enough to check by hand.

A forward and a backward, an optimizer step whose cache traffic was not counted, and a copy outside the
phases. DRAM in MiB, read + written, and kernel time:

forward 6 + 2 in 2 ms (a product 4 + 2 in 1 ms, an elementwise kernel 2 + 0 in 1 ms); backward 10 + 6 in 4 ms;
optimizer step 1 + 1 in 1 ms; outside 1 + 1 in 1 ms.
"""

from typing import Any

from dpprof.config import counter_metrics as ncu
from dpprof.record.counters import CounterResult, CounterRow

MIB = 2**20
GEMM = "cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>"
ADD = (
    "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char *, 3>>"
)
SM_PCT = "sm__throughput.avg.pct_of_peak_sustained_elapsed"


def row(
    name: str,
    kernel_class: str,
    phase: str | None,
    launches: int,
    ms: float,
    read: float,
    written: float,
    **values: float,
) -> CounterRow:
    """A row with `read` and `written` MiB of DRAM traffic; further values by the module's constant."""
    named = {getattr(ncu, constant): value for constant, value in values.items()}
    dram = {ncu.DRAM_READ: read * MIB, ncu.DRAM_WRITTEN: written * MIB}
    return CounterRow(name, kernel_class, phase, launches, ms / 1e3, dram | named)


def counters(**changes: Any) -> CounterResult:
    """The counters of the step, kernels the longest first."""
    cached = {"L2_READ": MIB / 32, "L2_WRITTEN": MIB / 64, "L1_LOAD": 4 * MIB, "L1_STORE": 2 * MIB}
    rows = [
        row(GEMM, "matrix_product", "backward", 2, 4, 10, 6, DRAM_PCT=40, **cached),
        row(GEMM, "matrix_product", "forward", 1, 1, 4, 2, DRAM_PCT=60, **cached),
        row(ADD, "elementwise", "forward", 3, 1, 2, 0, DRAM_PCT=20, **cached),
        row(ADD, "optimizer", "optimizer_step", 5, 1, 1, 1),
        row("Memcpy", "copy", None, 1, 1, 1, 1, DRAM_PCT=10, **cached),
    ]
    for counted in rows:
        if counted.phase == "forward":
            counted.values[SM_PCT] = 75.0
    settings = {"ncu": "2025.1.0", "replay_mode": "kernel", "cache_control": "none", "clock_control": "none"}
    missing = {"sm__cycles_active.sum": "this GPU has no such metric"}
    return CounterResult(rows, settings, missing, **changes)
