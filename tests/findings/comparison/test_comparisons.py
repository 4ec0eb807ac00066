"""Settings that vary between cells, and comparisons that an earlier dpprof exported."""

import json
from dataclasses import dataclass

import example_counters
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


OF_VERSION_2 = ("phases", "at_peak", "compared")


def of_version_1(found: Comparison) -> str:
    """The file that an earlier dpprof wrote of the same runs."""
    data = json.loads(found.to_json())
    for cell in data["cells"]:
        for run in cell["runs"]:
            for name in OF_VERSION_2:
                del run[name]
    return json.dumps(data | {"schema_version": 1})


def compared() -> Comparison:
    results = [
        result(
            trainer,
            step_s=[0.1, 0.3],
            peak_mib=12,
            at_peak={"parameters": 4, "noise": 7},
            phase_ms={"forward": 30, "backward": 60},
            peak_in={"forward": 5, "backward": 11},
            moved=[("forward", "copy", 3), ("backward", "copy", 5)],
            name=f"{trainer}_{i}",
        )
        for trainer in ("StandardTrainer", "DPSGDTrainer")
        for i in range(2)
    ]
    for one in results:
        assert one.record is not None
        one.record.counters = example_counters.counters()
    return comparison(*results)


def test_a_comparison_of_version_1_says_the_same() -> None:
    now = compared()
    before = Comparison.from_data(json.loads(of_version_1(now)))
    for old, new in zip(before.cells, now.cells, strict=True):
        assert old.figures == new.figures
        assert old.at_peak == new.at_peak == {"parameters": 4, "noise": 7, "untracked": 1}
        assert old.phase_ms == new.phase_ms == pytest.approx({"forward": 30, "backward": 60})
        assert old.peak_by_phase == new.peak_by_phase == {"forward": 5, "backward": 11}
        assert old.moved_by_phase == new.moved_by_phase == {"forward": 3, "backward": 5}
        assert before.ratios(old) == now.ratios(new)
        assert before.ratios(old, old.runs[0]) == now.ratios(new, new.runs[0])
        for phase in ("forward", "backward"):
            read, known = old.phases[phase].counters, new.phases[phase].counters
            assert read is not None
            assert known is not None
            assert (read.kernel_ms, read.dram_mib) == (known.kernel_ms, known.dram_mib)
    assert "vs_standard/counters/dram_read_mib_ratio" in before.ratios(before.cells[1])
    assert json.loads(before.to_json())["schema_version"] == 2
    assert Comparison.from_data(json.loads(before.to_json())) == before
