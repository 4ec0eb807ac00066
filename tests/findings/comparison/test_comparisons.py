"""Settings that vary between cells."""

import json
from dataclasses import dataclass

import pytest
from example_results import comparison, result

from dpprof.findings.comparison.comparison import Comparison, compare
from dpprof.pages.comparison.data import compute
from dpprof.pages.comparison.export import table
from dpprof.pages.comparison.summary import to_markdown
from dpprof.record.figures.names import STEP
from dpprof.vocabulary.settings import setting
from dpprof.vocabulary.trainers import TRAINER_NAMES, TRAINERS, TrainerInfo
from dpprof.vocabulary.workloads import WORKLOADS, WorkloadInfo

FOO = "DPFooTrainer"


@dataclass(frozen=True)
class FooOptions:
    beta: float = setting(0.5, "Weight of the past.")


@dataclass(frozen=True)
class WideOptions:
    width: int = setting(8, "Features.")


@pytest.fixture(autouse=True)
def _foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    info = TrainerInfo(FOO, FOO, True, "#000000", ("forward",), (), "foo:Foo", FooOptions)
    monkeypatch.setitem(TRAINERS, FOO, info)
    monkeypatch.setitem(TRAINER_NAMES, FOO, FOO)
    monkeypatch.setitem(WORKLOADS, "Wide", WorkloadInfo("Wide", "foo:wide", WideOptions))


def names(found: Comparison) -> list[list[str]]:
    return [[cell.trainer for cell in place] for place in found.places]


def test_a_trainer_with_options_stands_beside_those_that_have_none() -> None:
    standard, foo = result("StandardTrainer", step_s=0.1), result(FOO, step_s=0.3, beta=0.25)
    found = comparison(foo, result("DPSGDTrainer", step_s=0.2), standard)
    assert names(found) == [["StandardTrainer", "DPSGDTrainer", FOO]]
    assert found.ratio(found.cells[2], STEP) == pytest.approx(3)
    assert found.varying == [], "beta has one value"
    assert Comparison.from_data(json.loads(found.to_json())) == found


def test_an_option_that_differs_between_runs_of_its_trainer_is_shown() -> None:
    standard = result("StandardTrainer", step_s=0.1)
    foos = {source: result(FOO, step_s=0.3, beta=beta) for source, beta in (("a", 0.25), ("b", 1.0))}
    found = compare("x", {source: [standard, foo] for source, foo in foos.items()})
    assert names(found) == [["StandardTrainer", FOO]] * 2
    assert found.varying == ["beta"]
    data = compute(found)
    assert table(data)["beta"] == [None, 0.25, None, 1.0]
    text = " ".join(to_markdown(data).split())
    assert "| batch | beta | trainer |" in text
    for shown in ("0.25 | DPFooTrainer |", "1.0 | DPFooTrainer |", "| 4 | | StandardTrainer |"):
        assert shown in text


def test_a_workloads_option_makes_a_place_of_its_own() -> None:
    runs = [
        result(trainer, step_s=0.1, workload="Wide", width=width, name=f"{trainer}{width}")
        for width in (4, 16)
        for trainer in ("StandardTrainer", FOO)
    ]
    found = comparison(*runs)
    assert names(found) == [["StandardTrainer", FOO]] * 2
    assert found.varying == ["width"]
    widths = {found.place_name(place[0]).rpartition(", ")[2] for place in found.places}
    assert widths == {"width 4", "width 16"}
