"""The counters pass when it is stopped, takes too long or is killed, with a stand-in for `ncu`."""

import shutil
from pathlib import Path
from threading import Timer

import psutil
import pytest
from counting import CONFIG, count_in, counting_machine, measured_folder, oddly_named_folder, outcome
from example_config import changed
from example_ncu import StandIn

from dpprof.config.flat import to_flat
from dpprof.drive.counters import count
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.ncu import program
from dpprof.drive.stop import Stop
from dpprof.errors import CountersError
from dpprof.record.figures.results import FAILED, FINISHED, KILLED, read_result
from dpprof.record.folder import RunFolder
from dpprof.record.record import PassOutcome, PassStatus, Record

ncu = pytest.fixture(counting_machine)
folder = pytest.fixture(oddly_named_folder)
measured = pytest.fixture(measured_folder, scope="module")


def test_the_pass_takes_too_long(ncu: StandIn, folder: RunFolder) -> None:
    ncu.plan(hang=True)
    folder.create(CONFIG)
    config = changed(CONFIG, counters="ncu")
    record = Record(to_flat(config), {})
    count(config, folder, record, LocalLauncher(), 3.0, lambda line: None, Stop())
    failure = folder.read_error()
    assert failure is not None
    assert failure.kind == "timeout"
    assert failure.message.startswith("stopped after timeout_s=3 seconds")
    assert not _processes_of(folder)


def test_the_pass_is_stopped(ncu: StandIn, folder: RunFolder) -> None:
    folder.create(CONFIG)
    record, stop = Record(to_flat(CONFIG), {}), Stop()
    Timer(1.5, stop.request).start()
    count(CONFIG, folder, record, LocalLauncher(), 60.0, lambda line: None, stop)
    failure = folder.read_error()
    assert failure is not None
    assert failure.kind == "interrupted"
    folder.write_record(record)
    assert read_result(folder).status == KILLED
    assert not _processes_of(folder)


def test_ctrl_c_while_the_program_talks(
    ncu: StandIn, folder: RunFolder, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a terminal it ends the program too."""
    stop = Stop()

    def interrupted(self: program.Ncu) -> frozenset[str]:
        stop.request()
        raise CountersError("ncu --query-metrics failed: exit code -2")

    monkeypatch.setattr(program.Ncu, "available_metrics", interrupted)
    result = count_in(folder, measured, CONFIG, stop)
    assert result.status == KILLED
    assert outcome(result).reason == "stopped by the user"


def _processes_of(folder: RunFolder) -> list[int]:
    """Living processes that were started for a run folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(str(folder.path) in part for part in line):
            found.append(process.pid)
    return found


@pytest.mark.parametrize("mode", ["auto", "ncu"])
def test_a_killed_counters_pass_is_no_end(folder: RunFolder, measured: Path, mode: str) -> None:
    """As after SIGKILL of the driver: the pass runs in the record, and nothing says why it is not done."""
    shutil.copytree(measured, folder.path, dirs_exist_ok=True)
    folder.write_config(changed(CONFIG, counters=mode))
    record = folder.read_record()
    assert record is not None
    record.passes["counters"] = PassOutcome(PassStatus.RUNNING)
    folder.write_record(record)
    result = read_result(folder)
    assert record.failed_passes == {"counters": "it did not finish"}
    assert result.status == (FINISHED if mode == "auto" else FAILED)
    assert (result.failure.kind if result.failure else None) == (None if mode == "auto" else "killed")
