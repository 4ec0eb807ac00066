"""The `ncu` program: where it is, whether it may count, and its command lines.

Options: Nsight Compute's documentation, "Nsight Compute CLI".
"""

import csv
import os
import re
import shutil
import subprocess
from functools import cache
from glob import glob
from pathlib import Path

from dpprof.errors import CountersError, CountersUnavailable
from dpprof.ncu.messages import NO_PERMISSION, first_error, raise_known

# Where its installers put it without adding it to PATH.
_USUAL_PLACES = (
    "/usr/local/cuda/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
)
# What a report file (.ncu-rep) begins with.
REPORT_MAGIC = b"NVR\0"
_DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
_OWN_STATUS = Path("/proc/self/status")
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
_TALK_TIMEOUT_S = 600.0
# Each kernel launch is replayed as often as its metrics need; clocks and caches are left as they are.
SETTINGS = {"replay_mode": "kernel", "clock_control": "none", "cache_control": "none"}


def find() -> str | None:
    """The path of `ncu`: on PATH, else in a usual place, the newest release first."""
    on_path = shutil.which("ncu")
    if on_path:
        return on_path
    places = (path for pattern in _USUAL_PLACES for path in sorted(glob(pattern), reverse=True))
    return next((path for path in places if os.access(path, os.X_OK)), None)


def require(device: str) -> str:
    """The path of `ncu`, if this machine can be expected to count.

    Raises CountersUnavailable with what is missing and how to get it. Only a run shows for certain.
    """
    if device != "cuda":
        raise CountersUnavailable(
            "hardware counters need an NVIDIA GPU, and this experiment runs on the CPU: "
            "measure on a machine with one (device=cuda)"
        )
    ncu = find()
    if ncu is None:
        raise CountersUnavailable(
            "hardware counters need Nsight Compute, and there is no ncu on PATH: install it (it comes with "
            "the CUDA toolkit, or alone as the package nsight-compute) and put its folder on PATH"
        )
    if not _may_read_counters():
        raise CountersUnavailable(NO_PERMISSION)
    return ncu


def _may_read_counters() -> bool:
    """False if the driver reserves the counters for administrators and this process is none (Linux)."""
    try:
        if not re.search(r"RmProfilingAdminOnly:\s*1", _DRIVER_PARAMETERS.read_text()):
            return True
        effective = re.search(r"CapEff:\s*([0-9a-f]+)", _OWN_STATUS.read_text())
    except OSError:
        return True
    held = int(effective[1], 16) if effective else -1
    return bool(held >> _CAP_SYS_ADMIN & 1 or held >> _CAP_PERFMON & 1)


@cache
def version(ncu: str) -> str:
    """The program's version. Raises CountersUnavailable if it does not run."""
    try:
        said = _talk([ncu, "--version"])
    except (CountersError, OSError) as error:
        raise CountersUnavailable(f"{ncu} does not run: {error}") from None
    match = re.search(r"Version (\S+)", said)
    if "Nsight Compute" not in said or match is None:
        raise CountersUnavailable(f"{ncu} is not Nsight Compute's: put the folder of that before it on PATH")
    return match[1]


@cache
def available_metrics(ncu: str) -> frozenset[str]:
    """Base names of the metrics that this machine's GPU has; with several kinds of GPU, those that all have.

    Raises CountersUnavailable or CountersError if the program cannot list them.
    """
    rows = csv.reader(_talk([ncu, "--query-metrics", "--csv"]).splitlines())
    # Name, type, unit, meaning, then a column for each kind of GPU.
    names = frozenset(row[0] for row in rows if row and "__" in row[0] and all(row[4:]))
    if not names:
        raise CountersError(f"{ncu} --query-metrics lists no metrics")
    return names


def count_command(ncu: str, report: Path, metrics: list[str], wrapped: list[str]) -> list[str]:
    """The command that wraps another one and counts what runs between cudaProfilerStart and -Stop.

    Those calls apply to the whole process. NVTX push/pop ranges belong to one thread and would lose the
    backward pass, which autograd runs in another; start/end ranges belong to none.
    """
    return [
        ncu,
        *("--config-file", "off"),
        *("--target-processes", "all"),
        *("--profile-from-start", "off"),
        "--nvtx",
        *("--replay-mode", SETTINGS["replay_mode"]),
        *("--clock-control", SETTINGS["clock_control"]),
        *("--cache-control", SETTINGS["cache_control"]),
        *("--metrics", ",".join(metrics)),
        "--force-overwrite",
        *("--export", str(report).replace("%", "%%")),  # a percent sign begins a placeholder there
        *wrapped,
    ]


def to_csv(ncu: str, report: Path) -> str:
    """The raw page of a report as CSV. Raises CountersError if the program cannot read it."""
    return _talk([ncu, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"])


def _talk(command: list[str]) -> str:
    """What the program prints. Raises CountersError or CountersUnavailable if it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TALK_TIMEOUT_S,
            env=os.environ | {"LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CountersError(f"{command[0]} {command[1]} failed: {error}") from None
    if done.returncode:
        output = f"{done.stdout}\n{done.stderr}"
        raise_known(output)
        why = first_error(output) or f"exit code {done.returncode}"
        raise CountersError(f"{command[0]} {command[1]} failed: {why}")
    return done.stdout
