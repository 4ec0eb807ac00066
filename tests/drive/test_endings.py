"""A run folder in any state gives a result: what one experiment leaves behind stops no other."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from example_config import experiment
from example_runs import known

from dpprof.config.flat import to_flat
from dpprof.drive.endings import checked_result, failed_result, line_of_end
from dpprof.errors import DpprofError
from dpprof.record.figures.results import FAILED
from dpprof.record.folder import RunFolder
from dpprof.record.record import PassOutcome, PassStatus, Record

CONFIG = experiment(passes="clean,memory").resolve(cuda_available=False)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def a_file(folder: RunFolder) -> None:
    folder.path.write_text("not a folder")


def a_link_to_nothing(folder: RunFolder) -> None:
    folder.path.symlink_to("nowhere")


def folders_for_files(folder: RunFolder) -> None:
    for path in (folder.config, folder.error, folder.path / "damaged_record.json"):
        path.mkdir(parents=True)
        (path / "within").touch()
    folder.record.write_text("{")


def a_record_that_does_not_fit_together(folder: RunFolder) -> None:
    folder.path.mkdir()
    record = Record(to_flat(CONFIG), {}, passes={"clean": PassOutcome(PassStatus.FINISHED)})
    written = dataclasses.asdict(record) | {"phase_s": {"forward": [0.1, "soon"]}}
    folder.record.write_text(json.dumps(written))


@pytest.mark.parametrize(
    "leave", [a_file, a_link_to_nothing, folders_for_files, a_record_that_does_not_fit_together]
)
def test_what_an_experiment_left_of_its_folder_is_repaired(
    folder: RunFolder, leave: Callable[[RunFolder], None]
) -> None:
    leave(folder)
    result = failed_result(CONFIG, folder, DpprofError("it was odd"), stopped=False)
    assert result.status == FAILED
    assert checked_result(CONFIG, folder).failure == known(result.failure)


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(folder: RunFolder) -> None:
    folder.path.mkdir()
    os.mkfifo(folder.stacks)
    assert line_of_end(folder) is None


def test_where_a_rank_hung_is_told_in_any_script(folder: RunFolder) -> None:
    script = folder.path / "é 漢 😀" / "hangs.py"
    script.parent.mkdir(parents=True)
    script.write_text(
        "import os, pathlib, sys\n"
        "from dpprof.measure.stacks import stacks_at_end\n"
        "with stacks_at_end(pathlib.Path(sys.argv[1])):\n"
        "    os.kill(os.getpid(), 15)\n"
    )
    ended = subprocess.run([sys.executable, script, folder.stacks], check=False)
    assert ended.returncode == -signal.SIGTERM
    assert line_of_end(folder) == f"{script}, line 4, in <module>"
