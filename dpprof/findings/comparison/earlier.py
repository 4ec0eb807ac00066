"""Upgrade of comparisons that an earlier dpprof exported, which have figures by metric name alone.

Nothing else parses the names of metrics.
"""

from typing import Any

_STEP = "step_ms"
_COMPARED = (
    "latency/step_ms_median",
    "throughput/samples_per_s",
    "memory/peak_",
    "memory/at_peak/",
    "io/",
    "flops/",
)
_DIRECTIONS = ("dram_read", "dram_written")


def upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """Convert the data of a `summary.json` to version 2. Raises KeyError if it is not one."""
    if data["schema_version"] != 1:
        return data
    cells = [cell | {"runs": [_upgraded_run(run) for run in cell["runs"]]} for cell in data["cells"]]
    return data | {"schema_version": 2, "cells": cells}


def _upgraded_run(run: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in run.items() if name != "reservations"}
    return kept | {"assumptions": run.get("reservations", [])} | run_fields(run["figures"])


def run_fields(figures: dict[str, float]) -> dict[str, Any]:
    """Return the fields of a run that hold its figures, from figures by metric name."""
    return {
        "figures": figures,
        "phases": _phases(figures),
        "at_peak": _between(figures, "memory/at_peak/", "_mib"),
        "compared": [name for name in figures if name.startswith(_COMPARED) or _is_of_the_step(name)],
    }


def _between(figures: dict[str, float], prefix: str, suffix: str) -> dict[str, float]:
    return {
        name.removeprefix(prefix).removesuffix(suffix): value
        for name, value in figures.items()
        if name.startswith(prefix) and name.endswith(suffix)
    }


def _is_of_the_step(name: str) -> bool:
    """Return True for amounts and rates that hardware counters found over a whole step."""
    return name.startswith("counters/") and name.count("/") == 1 and "pct" not in name and "ratio" not in name


def _phases(figures: dict[str, float]) -> dict[str, dict[str, Any]]:
    latency = _between(figures, "latency/", "_ms")
    parts = {
        "ms": {phase: ms for phase, ms in latency.items() if not phase.startswith(_STEP)},
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
                for where in _DIRECTIONS
                if f"{where}_mib" in of_phase
            },
        }
    return found
