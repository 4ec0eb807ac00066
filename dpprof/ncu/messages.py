"""What Nsight Compute says when it cannot count, with what can be done about it.

Its messages are those of its documentation ("Known Issues", "Troubleshooting") and of its programs.
"""

import re
from collections.abc import Iterator

from dpprof.errors import CountersError, CountersUnavailable

_ERROR = "==ERROR=="
NO_PERMISSION = (
    "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM): run as root or with "
    "CAP_SYS_ADMIN (a container: --cap-add=SYS_ADMIN), or have the driver loaded with "
    "NVreg_RestrictProfilingToAdminUsers=0"
)
# A pattern in the program's output, whether the machine itself lacks something, and what to say.
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


def raise_known(output: str) -> None:
    """Raise if the program's output says why it cannot count.

    CountersUnavailable where the machine lacks something, CountersError for any other failure.
    """
    said = "\n".join(_errors(output))
    for pattern, is_lacking, sentence in _KNOWN:
        match = re.search(pattern, said, re.IGNORECASE)
        if match:
            error = CountersUnavailable if is_lacking else CountersError
            raise error(sentence.format(*match.groups()))


def first_error(output: str) -> str | None:
    """The program's first error message of any kind."""
    return next(_errors(output), None)


def _errors(output: str) -> Iterator[str]:
    for line in output.splitlines():
        if line.startswith(_ERROR):
            yield line.removeprefix(_ERROR).strip()
