"""The processor of this machine, as a record's environment names it."""

import os
import platform
from pathlib import Path


def processor() -> dict[str, str]:
    """Its name, and how many of its cores are open to this process."""
    open_to_us = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": _name(), "cpu_cores": str(open_to_us)}


def _name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
