"""Prints a line of JSON about the machine: versions, GPU, driver, clocks, and whether ncu may count.

python benchmarks/gpu/machine.py cuda
"""

import json
import subprocess
import sys

import torch

from dpprof.drive.ncu import program
from dpprof.errors import CountersError, CountersUnavailable
from dpprof.measure.environment import describe_environment

_ASKED = ("driver_version", "clocks.max.sm", "clocks.max.mem", "power.limit", "memory.total")


def main() -> None:
    """Print the line."""
    device = sys.argv[1]
    found: dict[str, object] = dict(describe_environment(device))
    del found["host"]
    if device == "cuda":
        found["gpu_memory_bytes"] = torch.cuda.get_device_properties(0).total_memory
        asked = ["nvidia-smi", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader"]
        try:
            told = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout
            found |= zip(_ASKED, (each.strip() for each in told.splitlines()[0].split(",")), strict=True)
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
            found["nvidia-smi"] = f"{type(error).__name__}: {error}"
    try:
        ncu = program.require(device)
        found["ncu"] = ncu.version()
        found["ncu_metrics"] = len(ncu.available_metrics())
    except (CountersError, CountersUnavailable) as lacking:
        found["counters"] = str(lacking)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
