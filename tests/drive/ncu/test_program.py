"""Whether the program is here and may count, and what it says of itself, of the GPU and of faults."""

from pathlib import Path

import pytest

from dpprof.drive.ncu import program
from dpprof.drive.ncu.program import Ncu, first_error, raise_known
from dpprof.errors import CountersError, CountersUnavailable


def test_what_is_missing_comes_with_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_USUAL_PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CountersUnavailable, match="no ncu on PATH: install it"):
        program.require("cuda")
    with pytest.raises(CountersUnavailable, match="device=cuda"):
        program.require("cpu")
    usual = tmp_path / "nsight-compute" / "2025.1" / "ncu"
    usual.parent.mkdir(parents=True)
    usual.write_text("")
    usual.chmod(0o755)
    monkeypatch.setattr(program, "_USUAL_PLACES", (str(tmp_path / "nsight-compute" / "*" / "ncu"),))
    assert program.require("cuda").path == str(usual)


@pytest.mark.parametrize(
    ("parameters", "capabilities", "allowed"),
    [
        ("RmProfilingAdminOnly: 1\n", 0, False),
        ("RmProfilingAdminOnly: 1\n", 1 << 21, True),
        ("RmProfilingAdminOnly: 1\n", 1 << 38, True),
        ("RmProfilingAdminOnly: 0\n", 0, True),
        ("", 0, True),
        (None, 0, True),
    ],
)
def test_permission_is_looked_up_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: str | None, capabilities: int, allowed: bool
) -> None:
    monkeypatch.setattr(program, "_DRIVER_PARAMETERS", tmp_path / "params")
    monkeypatch.setattr(program, "_OWN_STATUS", tmp_path / "status")
    monkeypatch.setattr(program, "find", lambda: "ncu")
    if parameters is not None:
        (tmp_path / "params").write_text(parameters)
    (tmp_path / "status").write_text(f"Name:\tpython\nCapEff:\t{capabilities:016x}\n")
    if allowed:
        assert program.require("cuda").path == "ncu"
    else:
        with pytest.raises(CountersUnavailable, match="NVreg_RestrictProfilingToAdminUsers=0"):
            program.require("cuda")


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("exit 3", r"does not run: .*exit code 3"),
        (None, r"does not run: .*No such file"),
        # npm-check-updates is called ncu too.
        ("echo 17.1.3", "is not Nsight Compute's: put the folder"),
    ],
)
def test_a_program_that_is_not_the_one(script: str | None, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(CountersUnavailable, match=sentence):
        made(tmp_path, script).version()


def made(place: Path, script: str | None) -> Ncu:
    """A shell script in the program's place."""
    if script is not None:
        (place / "ncu").write_text(f"#!/bin/sh\n{script}\n")
        (place / "ncu").chmod(0o755)
    return Ncu(str(place / "ncu"))


def test_with_two_kinds_of_gpu_a_metric_has_to_be_on_both(tmp_path: Path) -> None:
    table = '"Metric name","Metric type","Metric unit","Metric description","ad102","gh100"'
    rows = ['"a__x","Counter","byte","of, both","1","1"', '"a__y","Counter","byte","of one","","1"']
    script = "\n".join(["cat <<'END'", table, *rows, "END"])
    assert made(tmp_path, script).available_metrics() == {"a__x"}


@pytest.mark.parametrize(
    ("said", "lacking", "sentence"),
    [
        ("ERR_NVGPUCTRPERM - The user does not have permission to access", True, "CAP_SYS_ADMIN"),
        ("Driver could not be loaded.", True, "finds no NVIDIA driver"),
        ("Nsight Compute failed to connect to the CUDA driver (stub libcuda.so?).", True, "no NVIDIA"),
        ("Profiling failed because a driver resource was unavailable.", True, "dcgmi profile --pause"),
        ("Profiling is not supported on this device", True, "machine: Profiling is not supported on this"),
        ("Failed to find metric dram__nothing.sum", False, "no metric dram__nothing.sum: leave it out"),
        ("Error: InterprocessLockFailed", False, "set TMPDIR"),
        ("Unable to write to file x.ncu-rep. Please verify this file is not locked.", False, "write"),
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
