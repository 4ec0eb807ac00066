"""The `ncu` program: path, permissions, command lines, and its messages with remedies.

See "Nsight Compute CLI" in its documentation.
"""

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from glob import glob
from itertools import chain
from pathlib import Path

from dpprof.errors import CountersError, CountersUnavailable

# Where its installers put it without adding it to PATH.
_USUAL_PLACES = (
    "/usr/local/cuda/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
)
# First bytes of a report file (.ncu-rep).
REPORT_MAGIC = b"NVR\0"
_DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
_OWN_STATUS = Path("/proc/self/status")
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
_TALK_TIMEOUT_S = 600.0
# Each kernel launch is replayed as often as its metrics need; clocks and caches stay as they are.
SETTINGS = {"replay_mode": "kernel", "clock_control": "none", "cache_control": "none"}
_ERROR = "==ERROR=="
NO_PERMISSION = (
    "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM): run as root or with "
    "CAP_SYS_ADMIN (a container: --cap-add=SYS_ADMIN), or have the driver loaded with "
    "NVreg_RestrictProfilingToAdminUsers=0"
)
# Pattern in the output, whether the machine lacks something, and the message.
_KNOWN = [
    (r"ERR_NVGPUCTRPERM", True, NO_PERMISSION),
    (
        r"driver resource was unavailable|Ensure that no other tool",
        True,
        "another tool holds the GPU's performance counters, DCGM perhaps: stop it (dcgmi profile --pause)",
    ),
    (
        r"failed to connect to the CUDA driver|Driver could not be loaded|Cuda driver is not compatible",
        True,
        "ncu finds no NVIDIA driver that it can use: install one, or an Nsight Compute that fits the driver",
    ),
    (
        r"(.*(?:not supported|unsupported).*(?:device|GPU|chip|CMP).*|.*insufficient driver version.*"
        r"|.*confidential computing.*|.*protected memory.*)",
        True,
        "ncu cannot count on this machine: {0}",
    ),
    (
        r"Failed to find metric ([\w.]+)",
        False,
        "the GPU has no metric {0}: leave it out of counter_metrics (ncu --query-metrics lists those it has)",
    ),
    (
        r"out of memory|OutOfMemory",
        False,
        "CUDA out of memory under ncu, which keeps what a kernel changes to run it again",
    ),
    (
        r"InterprocessLock",
        False,
        "another user's ncu holds the lock file nsight-compute-lock in the temporary folder: delete it, or "
        "set TMPDIR",
    ),
    (r"No space left on device|Unable to write to file", False, "ncu could not write its report"),
]


def find() -> str | None:
    """Return the path of `ncu`: on PATH, else in a usual place, newest release first."""
    on_path = shutil.which("ncu")
    if on_path:
        return on_path
    places = (path for pattern in _USUAL_PLACES for path in sorted(glob(pattern), reverse=True))
    return next((path for path in places if os.access(path, os.X_OK)), None)


def require(device: str) -> "Ncu":
    """Return `ncu`, if this machine can probably count; only a run shows for certain.

    Raises CountersUnavailable with what is missing and how to get it.
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
    return Ncu(ncu)


def _may_read_counters() -> bool:
    """False if the driver reserves the counters for administrators and this process is not one (Linux)."""
    try:
        if not re.search(r"RmProfilingAdminOnly:\s*1", _DRIVER_PARAMETERS.read_text()):
            return True
        effective = re.search(r"CapEff:\s*([0-9a-f]+)", _OWN_STATUS.read_text())
    except OSError:
        return True
    held = int(effective[1], 16) if effective else -1
    return bool(held >> _CAP_SYS_ADMIN & 1 or held >> _CAP_PERFMON & 1)


@dataclass(frozen=True)
class Ncu:
    """The program at a path of this machine. Its methods raise CountersError or CountersUnavailable."""

    path: str

    def version(self) -> str:
        """Return the program's version. Raises CountersUnavailable if it does not run."""
        try:
            said = _talk_once(self.path, "--version")
        except CountersError as error:
            raise CountersUnavailable(f"{self.path} does not run: {error}") from None
        match = re.search(r"Version (\S+)", said)
        if "Nsight Compute" not in said or match is None:
            raise CountersUnavailable(
                f"{self.path} is not Nsight Compute's: put the folder of that before it on PATH"
            )
        return match[1]

    def available_metrics(self) -> frozenset[str]:
        """Return the base names of the metrics of this machine's GPU; of several kinds, those all have."""
        rows = csv.reader(_talk_once(self.path, "--query-metrics", "--csv").splitlines())
        # Name, type, unit, meaning, then a column for each kind of GPU.
        names = frozenset(row[0] for row in rows if row and "__" in row[0] and all(row[4:]))
        if not names:
            raise CountersError(f"{self.path} --query-metrics lists no metrics")
        return names

    def count_command(self, report: Path, metrics: list[str], wrapped: list[str]) -> list[str]:
        """Return the command that runs another one and counts between cudaProfilerStart and -Stop.

        Those calls apply to the whole process. NVTX push/pop ranges belong to one thread and would miss the
        backward pass, which autograd runs in another; start/end ranges belong to none.
        """
        options = {
            "--config-file": "off",
            "--target-processes": "all",
            "--profile-from-start": "off",
            "--replay-mode": SETTINGS["replay_mode"],
            "--clock-control": SETTINGS["clock_control"],
            "--cache-control": SETTINGS["cache_control"],
            "--metrics": ",".join(metrics),
            "--export": str(report).replace("%", "%%"),  # a percent sign begins a placeholder there
        }
        return [self.path, "--nvtx", "--force-overwrite", *chain.from_iterable(options.items()), *wrapped]

    def to_csv(self, report: Path) -> str:
        """Return a report's raw page as CSV. Raises CountersError if the program cannot read it."""
        return _talk(self.path, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base")


def _talk(*command: str) -> str:
    """Return the program's output. Raises CountersError or CountersUnavailable if it fails."""
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


_talk_once = cache(_talk)


def raise_known(output: str) -> None:
    """Raise CountersUnavailable if the machine lacks something, CountersError for other known errors."""
    said = "\n".join(_errors(output))
    for pattern, is_lacking, sentence in _KNOWN:
        match = re.search(pattern, said, re.IGNORECASE)
        if match:
            error = CountersUnavailable if is_lacking else CountersError
            raise error(sentence.format(*match.groups()))


def first_error(output: str) -> str | None:
    """Return the program's first error message of any kind."""
    return next(_errors(output), None)


def _errors(output: str) -> Iterator[str]:
    for line in output.splitlines():
        if line.startswith(_ERROR):
            yield line.removeprefix(_ERROR).strip()
