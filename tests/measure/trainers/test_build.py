import sys

import pytest

from dpprof.measure.trainers.build import import_trainers
from dpprof.vocabulary.trainers import STANDARD, TRAINERS, TrainerInfo

BROKEN = TrainerInfo("Broken", "broken", True, "#000000", (), (), "no_such_package.trainer:Broken")


def test_every_listed_trainer_is_imported() -> None:
    said: list[str] = []
    import_trainers(STANDARD, said.append)
    assert {info.target.partition(":")[0] for info in TRAINERS.values()} <= sys.modules.keys()
    assert said == []


def test_a_trainer_that_cannot_be_imported_keeps_nobody_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TRAINERS, "Broken", BROKEN)
    said: list[str] = []
    import_trainers(STANDARD, said.append)
    (line,) = said
    assert line.startswith("Broken cannot be imported (ModuleNotFoundError: No")
    with pytest.raises(ModuleNotFoundError):
        import_trainers("Broken", said.append)
