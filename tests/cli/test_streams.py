"""Standard output and standard error: what terminals and files show, and that who reads them ends nothing."""

import io
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import ROOT, Run, environment, fine, runs_of
from example_console import drawn
from example_results import result
from example_runs import known
from rich.live import Live

from dpprof.cli.console import PlainConsole, short_run_name, warn
from dpprof.cli.progress import Progress, duration
from dpprof.cli.streams import plain, waiting
from dpprof.pages.terminal import table, write_point
from dpprof.vocabulary.formats import counted

TITLE = "\x1b]0;mine\x07"
SWEEP = ["--workload", "example_workloads:speaking", "--trainers", "standard", "--seq-lens", "1"]
QUICK = ["--warmup-steps", "1", "--measured-steps", "1", "--passes", "clean", "--sweep-name", "read"]


def test_nobody_reads_a_sweep_to_its_end(tmp_path: Path) -> None:
    """Its output is closed after the first line, and has no ± for what the workload prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dpprof", "sweep", *SWEEP, "--batch-sizes", "2", *QUICK],
        cwd=tmp_path,
        env=environment(tmp_path) | {"PYTHONIOENCODING": "ascii"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = known(process.stdout)
    assert output.readline().startswith(b"read: 1 experiment ")
    output.close()
    assert process.wait(timeout=300) == 0
    assert [run.info.status for run in runs_of(tmp_path).values()] == ["FINISHED"] * 2
    log = tmp_path / "runs" / "read" / "StandardTrainer_speaking_bs2_seq1" / "run.log"
    assert "± 1" in log.read_text(encoding="utf-8")


def test_what_is_closed_or_full(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "dpprof", "--help"])
    full = "dpprof: not all of the output could be written: No space left on device\n"
    for redirected, code, said in (("<&- >&- 2>&-", 0, ""), ("| true", 0, ""), ("> /dev/full", 1, full)):
        script = ["bash", "-c", f"{command} {redirected}; exit ${{PIPESTATUS[0]}}"]
        env = environment(tmp_path)
        ended = subprocess.run(script, env=env, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (code, said)


def test_a_name_moves_no_cursor(called: Run, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests" / "written_by_0_3" / "grid", tmp_path / f"gr{TITLE}id")
    ended = fine(called("summarize", f"gr{TITLE}id"))
    assert "gr]0;mineid" in ended.stdout
    assert "\x1b" not in ended.stdout
    refused = called("summarize", "runs", f"more{TITLE}")
    assert refused.stderr == "dpprof: Got unexpected extra argument (more]0;mine)\n"


def test_what_controls_a_terminal_is_left_out_of_texts() -> None:
    assert plain(f"a{TITLE}\x9b1m\r\x7fb\tc\n±\u202ed") == "a]0;mine1mb\tc\n±d"
    file = io.StringIO()
    console = PlainConsole(file=file, width=80, force_terminal=True, color_system="standard")
    warn(console, f"it says {TITLE}")
    write_point(console, f"a point {TITLE}")
    console.print(table(f"of {TITLE}", [("name", str)], [(f"x{TITLE}",)]))
    shown = file.getvalue()
    assert "\x1b[33mwarning: \x1b[0m" in shown, "its own colours stay"
    assert shown.count("]0;mine") == 4
    assert "\x1b]" not in shown
    assert "\x07" not in shown


def in_a_terminal(folder: Path, *arguments: str) -> str:
    """What a terminal gets of a command."""
    ours, theirs = pty.openpty()
    env = environment(folder) | {"TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-m", "dpprof", *arguments]
    with subprocess.Popen(command, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        text = b""
        with suppress(OSError):  # the other side is closed
            while part := os.read(ours, 65536):
                text += part
    os.close(ours)
    return text.decode()


def test_a_terminal_sees_a_spinner_that_an_error_takes_away(tmp_path: Path) -> None:
    text = in_a_terminal(tmp_path, "sweep", "--trainers", "Adam")
    assert "getting ready" in text
    assert "\x1b[?25h" in text, "the cursor is back"
    assert "allowed: standard (StandardTrainer)" in text.rstrip().splitlines()[-1], "the error is last"
    assert "dpprof: trainers: got 'Adam'" in text.rpartition("\x1b[2K")[2]


def test_a_file_sees_none(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("getting ready"):
        pass
    assert capsys.readouterr().out == ""


def test_an_export_shows_that_it_works(tmp_path: Path) -> None:
    text = in_a_terminal(tmp_path, "export", "mine", "--format", "xml")
    assert "exporting" in text
    assert "dpprof: format: got 'xml'" in text.rpartition("\x1b[2K")[2]


def lines(progress: Progress) -> list[str]:
    return [re.sub(r"^\S ", "", line).strip() for line in drawn(progress.shown).splitlines()]


def test_what_runs_how_far_it_is_and_what_is_left() -> None:
    progress, ended = Progress(), result("StandardTrainer")
    progress.begin_at(1)
    assert lines(progress)[0].startswith("checking the workload")
    progress.started(2, 4, ended.name)
    progress.line(ended.name, "ledger pass")
    first, bar = lines(progress)
    assert re.fullmatch(rf"\[2/4\] {ended.name}: ledger pass +0:00:0\d", first)
    assert re.search(r"1 of 4 done after 0:00:0\d · left -:--:--", bar), "nothing tells the rest"
    progress.ended(ended)
    first, bar = lines(progress)
    assert first.startswith("writing the reports")
    assert "2 of 4 done after 0:00:0" in bar


def test_without_a_known_number_there_is_no_bar() -> None:
    progress = Progress(is_counted=False)
    progress.started(1, 2, "a label that is much too long " * 5)
    (line,) = lines(progress)
    assert "…" in line


@pytest.mark.parametrize("said", ["\x1b]0;mine\x07", "\x1b[2J", "[b]", "{y}"])
def test_what_a_workload_says_moves_no_cursor(said: str) -> None:
    file = io.StringIO()
    console = PlainConsole(file=file, width=80, force_terminal=True)
    progress = Progress()
    with Live(progress.shown, console=console, auto_refresh=False) as live:
        progress.started(1, 1, "one")
        progress.line("one", f"now {said}")
        live.refresh()
    assert f"now {plain(said)}" in file.getvalue()
    assert said == plain(said) or said not in file.getvalue()


def test_names_numbers_and_times_in_words() -> None:
    assert short_run_name("DPGhostClippingTrainer_tiny_bs2_seq16") == "ghost tiny_bs2_seq16"
    assert short_run_name("Mine_tiny_bs2_seq16") == "Mine_tiny_bs2_seq16"
    assert [counted(n, "search", "searches") for n in (1, 2)] == ["1 search", "2 searches"]
    assert counted(3, "run") == "3 runs"
    assert [duration(s) for s in (0.2, 59.4, 252, 3780)] == ["0 s", "59 s", "4 min 12 s", "1 h 3 min"]
