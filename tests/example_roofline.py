"""Figures by metric name of a run that never ran, round enough to check by hand, as cells of a comparison."""

from collections.abc import Mapping
from typing import Any

from dpprof.config.flat import from_flat, to_flat
from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.run import Run
from dpprof.json_files import typed
from dpprof.record.figures.results import FINISHED

# Forward: 64 MiB and 2**30 FLOPs in 4 ms, 16 FLOP/byte. Noise: 32 MiB and no FLOPs in 8 ms. Step: 12 ms.
LEDGER = {
    "latency/step_ms_median": 12.0,
    "latency/noise_ms": 8.0,
    "latency/forward_ms": 4.0,
    "io/noise/read_mib": 0.0,
    "io/noise/written_mib": 32.0,
    "io/forward/read_mib": 48.0,
    "io/forward/written_mib": 16.0,
    "io/total_mib": 96.0,
    "flops/noise": 0.0,
    "flops/forward": float(2**30),
    "flops/total": float(2**30),
}
# 32 GiB/s and 0.5 TFLOP/s: they meet at 0.5e12 / 2**35 = 14.55 FLOP/byte.
CEILINGS = {"ceilings/copy_gib_per_s": 32.0, "ceilings/matmul_tflop_per_s": 0.5}
# Forward: 16 MiB in 2 ms. The step: 24 MiB in 4 ms.
COUNTERS = {
    "counters/kernel_ms": 4.0,
    "counters/dram_read_mib": 16.0,
    "counters/dram_written_mib": 8.0,
    "counters/forward/kernel_ms": 2.0,
    "counters/forward/dram_read_mib": 12.0,
    "counters/forward/dram_written_mib": 4.0,
    "counters/class/copy/kernel_ms": 1.0,
    "counters/class/copy/dram_read_mib": 1.0,
    "counters/class/copy/dram_written_mib": 1.0,
}


def _fields(figures: dict[str, float]) -> dict[str, Any]:
    """The fields of a run that hold its figures."""
    return {"figures": figures, "phases": _phases(figures)}


def _between(figures: dict[str, float], prefix: str, suffix: str) -> dict[str, float]:
    return {
        name.removeprefix(prefix).removesuffix(suffix): value
        for name, value in figures.items()
        if name.startswith(prefix) and name.endswith(suffix)
    }


def _phases(figures: dict[str, float]) -> dict[str, dict[str, Any]]:
    latency = _between(figures, "latency/", "_ms")
    parts = {
        "ms": {phase: ms for phase, ms in latency.items() if not phase.startswith("step_ms")},
        "peak_mib": _between(figures, "memory/peak_in_", "_mib"),
        "read_mib": _between(figures, "io/", "/read_mib"),
        "written_mib": _between(figures, "io/", "/written_mib"),
        "flops": _between(figures, "flops/", ""),
        "counters": _counters(figures),
    }
    parts["flops"].pop("total", None)
    names = dict.fromkeys(phase for part in parts.values() for phase in part)
    return {phase: {field: part.get(phase) for field, part in parts.items()} for phase in names}


def _counters(figures: dict[str, float]) -> dict[str, Any]:
    found = {}
    for phase, kernel_ms in _between(figures, "counters/", "/kernel_ms").items():
        if phase.startswith("class/"):
            continue
        of_phase = _between(figures, f"counters/{phase}/", "")
        found[phase] = {
            "kernel_ms": kernel_ms,
            "kernel_launches": int(of_phase.get("kernel_launches", 0)),
            "traffic": {
                where: {"mib": of_phase[f"{where}_mib"], "gib_per_s": of_phase.get(f"{where}_gib_per_s")}
                for where in ("dram_read", "dram_written")
                if f"{where}_mib" in of_phase
            },
        }
    return found


def cell(
    *figures: Mapping[str, float], environment: Mapping[str, str] | None = None, **settings: Any
) -> Cell:
    """A cell with a run for each of some figures."""
    size = {} if settings.get("device") == "cuda" else {"model_size": "tiny"}
    config = from_flat(size | settings).resolve(cuda_available=settings.get("device") == "cuda")
    where = dict({"cpu": "a CPU"} if environment is None else environment)
    runs = [
        typed(
            Run,
            {"name": f"{config.run_name}_{i}", "status": FINISHED, "environment": where}
            | _fields(dict(each)),
        )
        for i, each in enumerate(figures)
    ]
    return Cell("s", to_flat(config), runs)


def comparison(*cells: Cell) -> Comparison:
    """The cells as one sweep named `s`."""
    return Comparison("s", list(cells))
