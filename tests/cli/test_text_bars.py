import pytest

from dpprof.cli.text_bars import bar


@pytest.mark.parametrize(
    ("value", "drawn", "in_ascii"),
    [(8.0, "████", "####"), (4.0, "██", "##"), (1.25, "▋", "#"), (16.0, "████", "####"), (1e-9, "▏", "#")],
)
def test_a_bar_is_as_long_as_its_share(value: float, drawn: str, in_ascii: str) -> None:
    assert bar(value, 8.0, 4) == drawn
    assert bar(value, 8.0, 4, ascii_only=True) == in_ascii


@pytest.mark.parametrize("value", [None, 0.0])
def test_nothing_has_no_bar(value: float | None) -> None:
    assert bar(value, 8.0, 4) == ""
    assert bar(1.0, 0.0, 4) == ""
