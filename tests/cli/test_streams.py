"""Standard output and standard error: who reads them, and what they can show, ends nothing."""

import io
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from conftest import ROOT, Run, environment, fine, runs_of

from dpprof.cli.console import PlainConsole, warn
from dpprof.cli.streams import plain
from dpprof.pages.terminal import table, write_point

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
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"read: 1 experiment ")
    process.stdout.close()
    assert process.wait(timeout=300) == 0
    assert [run.info.status for run in runs_of(tmp_path).values()] == ["FINISHED"] * 2
    log = tmp_path / "runs" / "read" / "StandardTrainer_speaking_bs2_seq1" / "run.log"
    assert "± 1" in log.read_text(encoding="utf-8")


def test_what_is_closed_or_full(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-m", "dpprof", "--help"])
    said = {
        redirected: subprocess.run(
            ["bash", "-c", f"{command} {redirected}; exit ${{PIPESTATUS[0]}}"],
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            check=False,
        )
        for redirected in ("<&- >&- 2>&-", "| true", "> /dev/full")
    }
    assert [(ended.returncode, ended.stderr) for ended in said.values()] == [
        (0, ""),
        (0, ""),
        (1, "dpprof: not all of the output could be written: No space left on device\n"),
    ]


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
