import re
from dataclasses import dataclass

import pytest
from conftest import refusal

from dpprof.vocabulary.settings import fields, parse, setting, take
from dpprof.vocabulary.trainable import choices, items, train_name


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
    ("name", "values"),
    [
        ("path", [(" a b ", "a b"), (7, "7")]),
        ("color", [("blue", "blue")]),
        ("trainer", [("std", "Standard")]),
        ("count", [(" 12 ", 12), (12, 12), ("1", 1)]),
        ("rate", [("1e-3", 0.001), (3, 3.0)]),
        ("deep", [("true", True), ("FALSE", False), (True, True)]),
    ],
)
def test_a_value_becomes_the_type_of_its_setting(name: str, values: list[tuple[object, object]]) -> None:
    for given, expected in values:
        parsed = parse(FIELDS[name], given)
        assert parsed == expected
        assert type(parsed) is type(expected)


@pytest.mark.parametrize(
    ("name", "refused", "allowed"),
    [
        ("color", ["green", ""], "red, blue"),
        ("trainer", ["sgd"], "std (Standard)"),
        ("count", ["0", "2.0", True, None], "a whole number of at least 1"),
        ("count", [str(10**30)], "a whole number up to 1,000,000,000"),
        ("rate", ["0", "nan", "fast"], "a number above 0"),
        ("share", ["-0.1"], "a number of at least 0"),
        ("deep", ["yes", 1], "true or false"),
        ("path", [False], "text"),
    ],
)
def test_a_refusal_names_the_option_the_value_and_what_is_allowed(
    name: str, refused: list[object], allowed: str
) -> None:
    for given in refused:
        shown = "an empty text" if given == "" else f"'{given}'"
        assert refusal(parse, FIELDS[name], given) == f"{name}: got {shown}, allowed: {allowed}"


def test_a_class_takes_its_own_values_and_defaults_and_leaves_the_others() -> None:
    assert take(Sample, {}) == (Sample("here", "red", "Standard", 2, 0.5, 0.0, False), {})
    given = {"count": "3", "size": "3", "deep": "true"}
    assert take(Sample, given) == (Sample(count=3, deep=True), {"size": "3"})


PATTERNS = ["*.bias", "*bias", ".bias", "bias*", "lora8", "all?", "h.0.*", "h.0.?", "*", "**", "x" * 300]
PATTERNS += ["!bias", "all,!bias", "all,!*bias", "bias,head", "head,bias"]


def test_names_of_what_trains_are_short_safe_in_file_names_and_never_alike() -> None:
    adapters = [("lora", rank, targets) for rank in (1, 8, 16) for targets in ("auto", "q", "q,v", "qv")]
    settings = [*adapters, *((train, 8, "auto") for train in ("all", "bias", "head", *PATTERNS))]
    names = [train_name(*each) for each in settings]
    assert len(set(names)) == len(settings)
    assert all(re.fullmatch(r"[A-Za-z0-9-]{0,40}", name) for name in names)
    assert (train_name("all", 8, "auto"), train_name("lora", 8, "auto")) == ("", "lora8")
    assert train_name("h.0.*", 8, "auto").startswith("h-0-")


def test_choices_are_what_trains_and_what_is_excluded_separated_by_commas() -> None:
    assert items(" q_proj, v_proj,,") == ["q_proj", "v_proj"]
    assert choices("bias, head") == (["bias", "head"], [])
    assert choices("h.*,! h.0.*,!h.1.*") == (["h.*"], ["h.0.*", "h.1.*"])
    assert choices("!*wpe*") == (["all"], ["*wpe*"])
