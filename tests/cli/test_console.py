import pytest
from example_console import printed, terminal

from dpprof.cli.console import counted, open_console, short_run_name, write, write_point


def test_a_terminal_breaks_paragraphs_between_words_and_no_address() -> None:
    console = terminal(width=20)
    write(console, "some words that are too many")
    write_point(console, "a point of several words")
    write(console, "http://127.0.0.1:5000/#/experiments/1")
    assert printed(console).splitlines() == [
        "some words that are",
        "too many",
        "  - a point of",
        "    several words",
        "http://127.0.0.1:5000/#/experiments/1",
    ]


def test_in_a_file_a_paragraph_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = open_console()
    write(console, "word " * 100)
    write_point(console, "[red]" + "word " * 100)
    assert [len(line) for line in capsys.readouterr().out.splitlines()] == [500, 4 + 5 + 500]


def test_short_names_of_runs_and_counted_things() -> None:
    assert short_run_name("DPGhostClippingTrainer_tiny_bs2_seq16") == "ghost tiny_bs2_seq16"
    assert short_run_name("Mine_tiny_bs2_seq16") == "Mine_tiny_bs2_seq16"
    assert [counted(1, "search", "searches"), counted(2, "search", "searches"), counted(3, "run")] == [
        "1 search",
        "2 searches",
        "3 runs",
    ]
