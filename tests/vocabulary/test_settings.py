from dataclasses import dataclass

import pytest
from conftest import refusal

from dpprof.vocabulary.settings import fields, parse, setting, take


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


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("path", " a b ", "a b"),
        ("path", 7, "7"),
        ("color", "blue", "blue"),
        ("trainer", "std", "Standard"),
        ("count", " 12 ", 12),
        ("count", 12, 12),
        ("rate", "1e-3", 0.001),
        ("rate", 3, 3.0),
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
        ("color", "", "color: got an empty text, allowed: red, blue"),
        ("trainer", "sgd", "trainer: got 'sgd', allowed: std (Standard)"),
        ("count", "0", "count: got '0', allowed: a whole number of at least 1"),
        ("count", "2.0", "count: got '2.0', allowed: a whole number of at least 1"),
        ("count", True, "count: got 'True', allowed: a whole number of at least 1"),
        (
            "count",
            str(10**30),
            "count: got '1000000000000000000000000000000', allowed: a whole number up to 1,000,000,000",
        ),
        ("count", None, "count: got 'None', allowed: a whole number of at least 1"),
        ("rate", "0", "rate: got '0', allowed: a number above 0"),
        ("rate", "nan", "rate: got 'nan', allowed: a number above 0"),
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
    assert refusal(parse, FIELDS[name], given) == message


def test_a_class_takes_its_own_values_and_defaults_and_leaves_the_others() -> None:
    assert take(Sample, {}) == (Sample("here", "red", "Standard", 2, 0.5, 0.0, False), {})
    given = {"count": "3", "size": "3", "deep": "true"}
    assert take(Sample, given) == (Sample(count=3, deep=True), {"size": "3"})
