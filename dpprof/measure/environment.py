"""Versions and hardware of an experiment, kept with every record."""

import importlib.metadata
import platform
import socket

import psutil
import torch

from dpprof import __version__
from dpprof.process import processor

# Hugging Face models need them.
_OF_MODELS = ("transformers", "peft")


def describe_environment(device: str, ranks_here: int = 1) -> dict[str, str]:
    """Return the versions and hardware that a reader needs in order to compare two runs."""
    found = {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **processor(),
        "memory_gib": f"{psutil.virtual_memory().total / 2**30:.1f}",
        "torch_threads": str(torch.get_num_threads()),
    }
    if ranks_here > 1:
        found["ranks_here"] = str(ranks_here)
    found |= {"dpprof_version": __version__, "torch_version": str(torch.__version__)}
    found |= {f"{name}_version": _version(name) or "not installed" for name in ("opacus", "numpy")}
    found |= {f"{name}_version": version for name in _OF_MODELS if (version := _version(name))}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        found["gpu"] = properties.name
        found["gpu_memory_gib"] = f"{properties.total_memory / 2**30:.1f}"
        found["cuda_version"] = str(torch.version.cuda)
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
