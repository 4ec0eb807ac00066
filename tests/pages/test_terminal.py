"""Documents in the terminal: tables are folded between words, split where that is not enough, never within a
figure.
"""

import pytest
from example_console import drawn, printed, terminal

from dpprof.cli.console import open_console
from dpprof.pages.document import Bar, Columns, figure
from dpprof.pages.document import table as document_table
from dpprof.pages.fitted_table import FittedTable, bar
from dpprof.pages.terminal import table, write, write_point
from dpprof.vocabulary.formats import one

COLUMNS: Columns = [("name", str), ("MiB", one), ("remark", str), ("empty", figure)]
ROWS = [("a", 1234.5, "two words", ""), ("b", 0.04, "", "")]


def test_a_table_that_fits_has_its_columns_side_by_side() -> None:
    assert drawn(table("title", COLUMNS, ROWS)).splitlines() == [
        "title",
        "name      MiB  remark",
        "a     1,234.5  two words",
        "b        0.04",
    ]


def test_texts_are_folded_first() -> None:
    assert drawn(table("", COLUMNS, ROWS), 21).splitlines() == [
        "name      MiB  remark",
        "a     1,234.5  two",
        "               words",
        "b        0.04",
    ]


def test_what_does_not_fit_beside_follows_below_beside_the_first_column() -> None:
    lines = drawn(table("", COLUMNS, ROWS), 12).splitlines()
    assert lines[:3] == ["name     MiB", "a    1,234.5", "b       0.04"]
    assert lines[3].split() == ["name", "remark"]


def test_brackets_are_no_markup_and_no_row_is_no_fault() -> None:
    assert "[red]x" in drawn(table("[b]", [("[i]", str)], [("[red]x",)]))
    assert drawn(table("", [("a", str), ("b", one)], [])).split() == ["a", "b"]


@pytest.mark.parametrize(
    ("share", "drawn", "in_ascii"),
    [(1.0, "████", "####"), (0.5, "██", "##"), (0.156, "▋", "#"), (2.0, "████", "####"), (1e-9, "▏", "#")],
)
def test_a_bar_is_as_long_as_its_share(share: float, drawn: str, in_ascii: str) -> None:
    assert bar(share, 4) == drawn
    assert bar(share, 4, ascii_only=True) == in_ascii
    assert bar(0.0, 4) == ""


def test_bars_are_shortened_before_a_column_is_split() -> None:
    made = table("", [("name", str), ("", str), ("words", str)], [("a", Bar(0.5), "not alone")])
    assert drawn(made).splitlines()[1] == f"a     {10 * '█'}            not alone"
    assert drawn(made, 23).splitlines() == ["name          words", "a     ███     not alone"]


def test_rows_of_a_group_have_its_name_above_and_columns_of_one_width() -> None:
    rows = [("a", 1.0), ("bb", 20.0)]
    made = document_table("", [("name", str), ("MiB", one)], rows, groups={0: "x", 1: "some y"})
    assert drawn(FittedTable(made)).splitlines() == ["name   MiB", "x", "a      1.0", "some y", "bb    20.0"]


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
