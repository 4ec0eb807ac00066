import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpprof.vocabulary.formats import fixed, listed_first, memory, milliseconds, number, signed, size

NOT_ZERO = st.floats(-1e9, 1e9).filter(lambda value: abs(value) > 1e-12)


def read(text: str) -> float:
    return float(text.replace(",", ""))


@given(NOT_ZERO, st.integers(0, 3))
def test_what_is_not_zero_reads_as_what_it_is_within_five_percent(value: float, digits: int) -> None:
    assume(digits > 0 or abs(value) >= 10)
    for text in (fixed(value, digits), number(value), signed(value, digits)):
        assert read(text) == pytest.approx(value, rel=0.051)


@given(NOT_ZERO)
def test_no_unit_makes_a_zero_of_it(value: float) -> None:
    for text in (size(value), memory(value), milliseconds(value), fixed(value, 0)):
        assert read(text.split()[0]) != 0


def test_decimals() -> None:
    one = {None: "", 0.0: "0.0", 0.996: "1.0", 1234.56: "1,234.6", -0.012: "-0.012"}
    assert {value: fixed(value, 1) for value in one} == one
    assert [fixed(0.004, 2), fixed(0.0996, 2), fixed(0.4, 0)] == ["0.004", "0.10", "0.4"]


def test_sizes_take_the_unit_in_which_they_can_be_read() -> None:
    sizes = {0: "0.0 MiB", 0.0019: "1.9 KiB", 0.1: "0.1 MiB", 16.91: "16.9 MiB", 2048: "2,048.0 MiB"}
    assert {mib: size(mib) for mib in sizes} == sizes
    memories = {0.05: "51.2 KiB", 20.48: "20.5 MiB", 1024: "1.0 GiB", 81_920: "80.0 GiB"}
    assert {mib: memory(mib) for mib in memories} == memories


def test_numbers_have_three_digits_and_differences_a_sign() -> None:
    numbers = {None: "", 0: "0.00", 0.0123: "0.012", 1.234: "1.23", 12.34: "12.3", 1234.5: "1,234"}
    assert {value: number(value) for value in numbers} == numbers
    assert [signed(v) for v in (0, -0.02, 12.34)] == ["+0.0", "-0.02", "+12.3"]


def test_what_a_table_lists_comes_first_and_nothing_is_left_out() -> None:
    found = listed_first(["x", "b", "y", "a", "x"], ["a", "b", "c"])
    assert found == ["a", "b", "x", "y"]
