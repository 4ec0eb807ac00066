from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpprof.errors import ConfigError
from dpprof.settings import LARGEST, allowed, fields, parse, parse_all, setting


@dataclass(frozen=True)
class Sample:
    path: str = setting("here", "Any text.")
    color: str = setting("red", "A choice.", choices=("red", "blue"))
    trainer: str = setting(
        "Standard", "A choice with aliases.", choices={"Standard": "Standard", "std": "Standard"}
    )
    count: int = setting(2, "At least one.", minimum=1)
    rate: float = setting(0.5, "Above zero.", above=0)
    share: float = setting(0.0, "At least zero.", minimum=0)
    deep: bool = setting(False, "Yes or no.")


FIELDS = fields(Sample)


def test_fields_are_in_the_order_of_declaration_and_carry_their_help() -> None:
    assert list(FIELDS) == ["path", "color", "trainer", "count", "rate", "share", "deep"]
    assert FIELDS["count"].metadata["help"] == "At least one."


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("path", " a b ", "a b"),
        ("path", 7, "7"),
        ("path", "", ""),
        ("color", "blue", "blue"),
        ("trainer", "std", "Standard"),
        ("trainer", "Standard", "Standard"),
        ("count", "1", 1),
        ("count", " 12 ", 12),
        ("count", 12, 12),
        ("rate", "1e-3", 0.001),
        ("rate", 3, 3.0),
        ("share", "0", 0.0),
        ("deep", "true", True),
        ("deep", "FALSE", False),
        ("deep", True, True),
    ],
)
def test_a_value_becomes_the_type_of_its_setting(name: str, given: object, expected: object) -> None:
    parsed = parse(FIELDS[name], given)
    assert parsed == expected
    assert type(parsed) is type(expected)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("color", "green", "color: got 'green', allowed: red, blue"),
        ("color", "Red", "color: got 'Red', allowed: red, blue"),
        ("color", "", "color: got an empty text, allowed: red, blue"),
        ("trainer", "sgd", "trainer: got 'sgd', allowed: Standard, std"),
        ("count", "0", "count: got '0', allowed: a whole number of at least 1"),
        ("count", "2.0", "count: got '2.0', allowed: a whole number of at least 1"),
        ("count", 2.5, "count: got '2.5', allowed: a whole number of at least 1"),
        ("count", True, "count: got 'True', allowed: a whole number of at least 1"),
        ("count", None, "count: got 'None', allowed: a whole number of at least 1"),
        ("count", [1], "count: got '[1]', allowed: a whole number of at least 1"),
        ("rate", "0", "rate: got '0', allowed: a number above 0"),
        ("rate", "nan", "rate: got 'nan', allowed: a number above 0"),
        ("rate", "inf", "rate: got 'inf', allowed: a number above 0"),
        ("rate", "fast", "rate: got 'fast', allowed: a number above 0"),
        ("share", "-0.1", "share: got '-0.1', allowed: a number of at least 0"),
        ("deep", "yes", "deep: got 'yes', allowed: true or false"),
        ("deep", 1, "deep: got '1', allowed: true or false"),
        ("path", False, "path: got 'False', allowed: text"),
    ],
)
def test_a_refusal_names_the_option_the_value_and_what_is_allowed(
    name: str, given: object, message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(FIELDS[name], given)
    assert str(refused.value) == message


@settings(deadline=None)
@given(
    st.integers(min_value=1, max_value=LARGEST),
    st.floats(min_value=0, exclude_min=True, allow_infinity=False),
)
def test_numbers_survive_as_text_and_as_json(count: int, rate: float) -> None:
    assert parse(FIELDS["count"], str(count)) == parse(FIELDS["count"], count) == count
    assert parse(FIELDS["rate"], str(rate)) == parse(FIELDS["rate"], rate) == rate


def test_allowed_words() -> None:
    words = {name: allowed(field) for name, field in FIELDS.items()}
    assert words == {
        "path": "text",
        "color": "red, blue",
        "trainer": "Standard, std",
        "count": "a whole number of at least 1",
        "rate": "a number above 0",
        "share": "a number of at least 0",
        "deep": "true or false",
    }


def test_parse_all_takes_defaults_where_nothing_is_given() -> None:
    assert parse_all(Sample, {}) == Sample("here", "red", "Standard", 2, 0.5, 0.0, False)
    assert parse_all(Sample, {"count": "3", "deep": "true"}) == Sample(count=3, deep=True)


def test_parse_all_refuses_an_unknown_option() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_all(Sample, {"size": "3"})
    expected = "unknown option 'size', allowed: path, color, trainer, count, rate, share, deep"
    assert str(refused.value) == expected
