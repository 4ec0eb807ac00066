"""What Nsight Compute says, as its own programs and its documentation have it."""

import pytest

from dpprof.errors import CountersError, CountersUnavailable
from dpprof.ncu.messages import first_error, raise_known


@pytest.mark.parametrize(
    ("said", "lacking", "sentence"),
    [
        (
            "ERR_NVGPUCTRPERM - The user does not have permission to access",
            True,
            "CAP_SYS_ADMIN",
        ),
        ("Driver could not be loaded.", True, "finds no NVIDIA driver"),
        (
            "Nsight Compute failed to connect to the CUDA driver (stub libcuda.so[.1] on path?).",
            True,
            "no NVIDIA",
        ),
        (
            "Profiling failed because a driver resource was unavailable. Ensure that no other tool (like "
            "DCGM) is concurrently collecting profiling data.",
            True,
            "dcgmi profile --pause",
        ),
        (
            "Profiling is not supported on this device",
            True,
            "ncu cannot count on this machine: Profiling is not supported on this device",
        ),
        ("Failed to find metric dram__nothing.sum", False, "no metric dram__nothing.sum: leave it out"),
        ("Error: InterprocessLockFailed", False, "set TMPDIR"),
        (
            "Unable to write to file x.ncu-rep. Please verify this file is not locked, and writable.",
            False,
            "write",
        ),
    ],
)
def test_known_messages(said: str, lacking: bool, sentence: str) -> None:
    with pytest.raises(CountersError) as caught:
        raise_known(f"==PROF== Connected\n==ERROR== {said}\n==WARNING== No kernels were profiled.\n")
    assert isinstance(caught.value, CountersUnavailable) == lacking
    assert sentence in str(caught.value)


def test_only_the_programs_own_lines_count() -> None:
    """Whatever the profiled process prints."""
    raise_known("my log: ERR_NVGPUCTRPERM, out of memory\n==PROF== Disconnected\n")
    raise_known("==WARNING== Section X is not supported on this device\n")
    assert first_error("hello\n==PROF== x\n==ERROR== First one.\n==ERROR== Second.\n") == "First one."
    assert first_error("hello\n") is None
