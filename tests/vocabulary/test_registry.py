"""Tables with entry points of a package that lies on the path as pip would have installed it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dpprof.vocabulary.registry import table
from dpprof.vocabulary.trainer_info import TrainerInfo
from dpprof.vocabulary.trainers import TRAINER_NAMES, TRAINERS, trainer_info, trainer_order

MODULE = """
from test_registry import Item
fine, taken, odd, foreign = Item("fine"), Item("mine"), Item("../odd"), "a text"
"""


@dataclass(frozen=True)
class Item:
    name: str


Declare = Callable[[str], dict[str, Item]]


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Declare:
    """Makes the table with an entry point of a package."""
    (tmp_path / "declared_items.py").write_text(MODULE)
    metadata = tmp_path / "declaring-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: declaring\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def declared(target: str) -> dict[str, Item]:
        (metadata / "entry_points.txt").write_text(f"[items.of.tests]\nentry = {target}\n")
        return table("items.of.tests", Item, [Item("mine")])

    return declared


def test_an_entry_point_adds_to_the_table(declare: Declare) -> None:
    assert list(declare("declared_items:fine")) == ["mine", "fine"]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("declared_items:taken", "the name mine is taken"),
        ("declared_items:odd", "the name '../odd' must be letters"),
        ("declared_items:foreign", "its type must be Item, and is str"),
        ("no_such_module:item", "it cannot be imported"),
    ],
)
def test_what_cannot_be_used_is_left_out_with_a_warning(declare: Declare, target: str, why: str) -> None:
    with pytest.warns(UserWarning, match=rf"entry of declaring is left out: {why}"):
        assert list(declare(target)) == ["mine"]


def test_an_unlisted_trainer_has_a_grey_and_its_own_name_and_comes_last() -> None:
    info = trainer_info("ElsewhereTrainer")
    assert (info.name, info.is_private) == ("ElsewhereTrainer", True)
    assert len({info.color[i : i + 2] for i in (1, 3, 5)}) == 1, "a grey"
    assert sorted(["ElsewhereTrainer", *reversed(TRAINERS)], key=trainer_order) == [*TRAINERS, info.name]


def test_short_names_stand_for_trainers() -> None:
    assert TRAINER_NAMES["ghost"] == TRAINER_NAMES["DPGhostClippingTrainer"] == "DPGhostClippingTrainer"


def test_a_colour_that_pages_cannot_use_is_refused() -> None:
    with pytest.raises(ValueError, match="color must be #rrggbb, and is red"):
        TrainerInfo("A", "a", True, "red", (), (), "a:A")
