"""What an experiment ran on: versions and hardware, kept with every record."""

import importlib.metadata
import os
import platform
import socket
from pathlib import Path

import psutil
import torch

from dpprof import __version__

PACKAGES = ("dpprof", "torch", "opacus", "numpy")


def describe_environment(device: str, ranks_here: int = 1) -> dict[str, str]:
    """Names and values that a reader needs before comparing two runs."""
    found = {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_name(),
        "cpu_cores": str(
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
        "memory_gib": f"{psutil.virtual_memory().total / 2**30:.1f}",
        "torch_threads": str(torch.get_num_threads()),
    }
    if ranks_here > 1:
        found["ranks_here"] = str(ranks_here)
    found |= {f"{name}_version": _version(name) for name in PACKAGES}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        found["gpu"] = properties.name
        found["gpu_memory_gib"] = f"{properties.total_memory / 2**30:.1f}"
        found["cuda_version"] = str(torch.version.cuda)
    return found


def _version(package: str) -> str:
    if package == "torch":
        return str(torch.__version__)
    if package == "dpprof":  # of the code that runs, whatever was installed when
        return __version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
