"""Tables that fit: folded between words, split where that is not enough, never within a figure."""

from collections.abc import Callable

import pytest
from example_console import drawn

from dpprof.cli.fitted_tables import one, right, table

COLUMNS: list[tuple[str, Callable[..., str]]] = [("name", str), ("MiB", one)]
COLUMNS += [("remark", str), ("empty", right)]
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


@pytest.mark.parametrize("width", [10, 12])
def test_what_does_not_fit_beside_follows_below_beside_the_first_column(width: int) -> None:
    lines = drawn(table("", COLUMNS, ROWS), 12).splitlines()
    assert lines[:3] == ["name     MiB", "a    1,234.5", "b       0.04"]
    assert lines[3].split() == ["name", "remark"]


def test_brackets_are_no_markup_and_no_row_is_no_fault() -> None:
    assert "[red]x" in drawn(table("[b]", [("[i]", str)], [("[red]x",)]))
    assert drawn(table("", [("a", str), ("b", one)], [])).split() == ["a", "b"]
