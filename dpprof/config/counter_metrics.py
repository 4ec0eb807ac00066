"""Metrics for Nsight Compute: presets, full names, and nvprof's old names.

See Nsight Compute's documentation, "Metrics Reference" and "nvprof Metric Comparison".
"""

import re
from collections.abc import Set

from dpprof.errors import refuse

# Duration, the base of all shares and rates: seconds here, nanoseconds in Nsight Compute.
DURATION = "gpu__time_duration.sum"
DRAM_READ, DRAM_WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
DRAM_PCT = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
L2_READ, L2_WRITTEN = "lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum"
L2_ATOMIC, L2_REDUCTION = "lts__t_sectors_op_atom.sum", "lts__t_sectors_op_red.sum"
L1_LOAD = "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum"
L1_STORE = "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum"
SECTOR_BYTES = 32
# Lookups, as hit rates cannot be summed.
L2_HITS, L2_MISSES = "lts__t_sectors_lookup_hit.sum", "lts__t_sectors_lookup_miss.sum"
L1_HITS, L1_MISSES = "l1tex__t_sectors_lookup_hit.sum", "l1tex__t_sectors_lookup_miss.sum"

BASIC = (DURATION, DRAM_READ, DRAM_WRITTEN, DRAM_PCT, L2_READ, L2_WRITTEN, L1_LOAD, L1_STORE)
PRESETS = {
    "basic": BASIC,
    "full": (
        *BASIC,
        L2_ATOMIC,
        L2_REDUCTION,
        L2_HITS,
        L2_MISSES,
        "lts__throughput.avg.pct_of_peak_sustained_elapsed",
        L1_HITS,
        L1_MISSES,
        "l1tex__m_xbar2l1tex_read_bytes.sum",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.sum",
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    ),
}
# Throughputs are counted as bytes and divided by the sum of durations later.
NVPROF = {
    "dram_read_throughput": (DRAM_READ,),
    "dram_write_throughput": (DRAM_WRITTEN,),
    "dram_utilization": (DRAM_PCT,),
    "l2_read_throughput": (L2_READ, L2_ATOMIC, L2_REDUCTION),
    "l2_write_throughput": (L2_WRITTEN, L2_ATOMIC, L2_REDUCTION),
    "gld_throughput": (L1_LOAD,),
    "gst_throughput": (L1_STORE,),
}
# Names of metrics on some chips (sm_120: DRAM bytes), by the name used here.
_ALIASES = {"dram__bytes_read": "dram__bytes_op_read", "dram__bytes_write": "dram__bytes_op_write"}
_CANONICAL = {alias: name for name, alias in _ALIASES.items()}
_FULL_NAME = re.compile(r"[a-zA-Z]\w*__\w+(\.\w+)+")
_PER_SECOND = ".sum.per_second"


def metric_names(text: str) -> list[str]:
    """Return Nsight Compute's names for a list of presets, full names and nvprof's names; duration first.

    A rate (`.sum.per_second`) is counted as its sum. Raises ConfigError for other names.
    """
    found = [DURATION]
    for item in (part.strip() for part in text.split(",")):
        if item in PRESETS:
            found += PRESETS[item]
        elif item in NVPROF:
            found += NVPROF[item]
        elif _FULL_NAME.fullmatch(item):
            found.append(canonical(item.removesuffix(".per_second") if item.endswith(_PER_SECOND) else item))
        else:
            raise refuse(
                "counter_metrics",
                item,
                f"{', '.join(PRESETS)}, a full name of Nsight Compute's with its suffix "
                f"(dram__bytes_read.sum), or of nvprof's {', '.join(NVPROF)}",
            )
    return list(dict.fromkeys(found))


def canonical(name: str) -> str:
    """Return dpprof's name of a metric, given the chip's."""
    base, dot, suffix = name.partition(".")
    return _CANONICAL.get(base, base) + dot + suffix


def resolve(names: list[str], available: Set[str]) -> tuple[list[str], dict[str, str]]:
    """Return the chip's names of metrics, given its base names, and a reason for each missing one."""
    found, missing = [], {}
    for name in names:
        base, dot, suffix = name.partition(".")
        own = next((b for b in (base, _ALIASES.get(base)) if b in available), None)
        if own is None:
            missing[name] = "this GPU has no such metric (ncu --query-metrics lists those it has)"
        else:
            found.append(own + dot + suffix)
    return found, missing
