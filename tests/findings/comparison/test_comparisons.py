"""Settings that vary between cells."""

import dataclasses
import json
from dataclasses import dataclass

import pytest
from example_results import comparison, result

from dpprof.findings.comparison.comparison import Comparison, compare
from dpprof.findings.comparison.data import compute
from dpprof.pages.comparison.export import table
from dpprof.pages.comparison.summary import to_markdown
from dpprof.pages.comparison.tables import model_table
from dpprof.record.figures.names import STEP
from dpprof.record.record import Failure, FailureKind
from dpprof.vocabulary.settings import setting
from dpprof.vocabulary.trainer_info import TrainerInfo
from dpprof.vocabulary.trainers import OWN_LOOP, TRAINER_NAMES, TRAINERS
from dpprof.vocabulary.workload_info import WorkloadInfo
from dpprof.vocabulary.workloads import WORKLOADS

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
    assert table(found)["beta"] == [None, 0.25, None, 1.0]
    text = " ".join(to_markdown(compute(found)).split())
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


BF16, FP32 = {"bf16": 1}, {"fp32": 1}


def test_weights_of_other_types_are_places_of_their_own() -> None:
    standard, flat = result(step_s=0.1, weights=BF16), result("DPSGDTrainer", step_s=0.2, weights=BF16)
    ghost = result("DPGhostClippingTrainer", step_s=0.3, weights=FP32)
    found = comparison(standard, flat, ghost)
    assert names(found) == [["StandardTrainer", "DPSGDTrainer"], ["DPGhostClippingTrainer"]]
    assert [found.ratio(cell, STEP) for cell in found.cells] == [1, 2, None]
    short, wide = (found.place_name(place[0]) for place in found.places)
    assert (short[-15:], wide[-15:]) == ("weights in bf16", "weights in fp32")
    assert table(found)["precision"] == ["fp32, weights in bf16"] * 2 + ["fp32"]
    (model,) = found.by_model
    assert model_table(found, model).title == "tiny (1.23M parameters), fp32", "the places tell the rest"
    assert Comparison.from_data(json.loads(found.to_json())) == found


def test_a_run_that_built_no_model_stays_with_its_trainers() -> None:
    flat = result("DPSGDTrainer", step_s=0.2, weights=BF16)
    killed = result(failure=Failure(FailureKind.KILLED, "it was killed"))
    found = comparison(killed, flat)
    assert names(found) == [["StandardTrainer", "DPSGDTrainer"]]
    assert {found.precision(cell) for cell in found.cells} == {"fp32, weights in bf16"}
    (model,) = found.by_model
    assert model_table(found, model).title == "tiny (1.23M parameters), fp32, weights in bf16"
    of_two = comparison(killed, flat, result("DPGhostClippingTrainer", step_s=0.3, weights=FP32))
    assert len(names(of_two)) == 3, "it may be of either"


def test_the_precision_of_a_place_is_told_with_the_weights() -> None:
    found = comparison(*(result(step_s=0.1, precision=each, weights=BF16) for each in ("fp32", "bf16")))
    told = {found.settings_in_words(cell).rpartition("precision ")[2] for cell in found.cells}
    assert told == {"fp32, weights in bf16", "bf16, weights in bf16"}
    assert "weights" not in comparison(result(step_s=0.1, weights=FP32)).places[0][0].precision


def test_a_measured_loop_has_the_type_of_its_weights_alone() -> None:
    """Whether it ran under autocast is not known."""
    found = result(step_s=0.1, weights=BF16)
    loop = dataclasses.replace(found, config=dataclasses.replace(found.config, trainer=OWN_LOOP))
    (cell,) = comparison(loop).cells
    assert (loop.precision, cell.precision) == ("weights in bf16", "weights in bf16")
