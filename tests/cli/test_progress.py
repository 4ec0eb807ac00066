"""The live lines of what runs, and words for names, numbers and times."""

import io
import re

import pytest
from example_console import drawn
from example_results import result
from rich.live import Live

from dpprof.cli.console import PlainConsole, short_run_name
from dpprof.cli.progress import Progress, duration
from dpprof.cli.streams import plain
from dpprof.vocabulary.formats import counted


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
