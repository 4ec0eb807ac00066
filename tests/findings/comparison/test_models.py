"""Two models of one name: each is told from the other, and has its own number of parameters."""

import dataclasses

from example_results import comparison, result

from dpprof.config.experiment import ExperimentConfig
from dpprof.findings.comparison.comparison import Comparison, compare
from dpprof.findings.comparison.data import compute
from dpprof.findings.comparison.growth import lines
from dpprof.findings.comparison.models import distinct_names, short_count
from dpprof.pages.comparison.page import render
from dpprof.pages.comparison.summary import to_markdown
from dpprof.pages.comparison.tables import added_table
from dpprof.record.figures.names import PEAK
from dpprof.record.figures.results import Result


def counted(num_parameters: int | None, trainer: str = "StandardTrainer", **settings: object) -> Result:
    made = result(trainer, step_s=0.1, peak_mib=10, **settings)  # type: ignore[arg-type]
    assert made.record is not None
    return dataclasses.replace(made, record=dataclasses.replace(made.record, num_parameters=num_parameters))


def labels(found: Comparison) -> list[str]:
    return [found.model(place[0]).label for place in found.places]


def headings(found: Comparison) -> list[str]:
    return [model.heading for model in found.by_model]


def test_one_factory_name_in_two_modules_is_two_models() -> None:
    found = comparison(counted(5, workload="a.b:make"), counted(700, workload="c:make"), counted(9))
    assert labels(found) == ["tiny", "a.b:make", "c:make"]
    assert headings(found) == ["tiny (9 parameters)", "a.b:make (5 parameters)", "c:make (700 parameters)"]


def test_one_factory_under_two_model_sizes_is_two_models() -> None:
    cells = [counted(n, workload="a:make", model_size=size) for n, size in ((5, "tiny"), (7, "small"))]
    assert headings(comparison(*cells)) == ["a:make tiny (5 parameters)", "a:make small (7 parameters)"]
    called = comparison(counted(5, workload="a:tiny"), counted(9))
    assert labels(called) == ["tiny", "a:tiny"], "a factory that is called as a size is not that size"


def test_one_setting_with_different_parameters_in_two_sources_is_two_models() -> None:
    """As when the code of a factory changed in between; a run that failed early belongs to its place."""
    old = [counted(5, workload="a:make"), counted(None, "DPSGDTrainer", workload="a:make")]
    new = [counted(1_230_000, workload="a:make"), counted(1_230_000, "DPSGDTrainer", workload="a:make")]
    found = compare("x", {"old": old, "new": new})
    both = ["make (1,230,000 parameters)", "make (5 parameters)"]
    assert sorted(headings(found)) == sorted(labels(found)) == both
    page, tables = render(compute(found)), to_markdown(compute(found))
    for name in both:
        assert page.count(f"<h2>{name}, fp32</h2>") == 1
        assert f"| {name} " in tables
    assert added_table(found).title.endswith(", make (1,230,000 parameters), batch 4, sequence 512, new")


def test_a_count_that_grows_with_the_sequence_is_one_model_and_each_place_has_its_own() -> None:
    found = comparison(counted(50, seq_len=16), counted(90, seq_len=32))
    assert labels(found) == ["tiny", "tiny"]
    assert headings(found) == ["tiny (50 to 90 parameters)"]
    assert "<h2>tiny (50 to 90 parameters), fp32</h2>" in render(compute(found))


def test_lines_of_two_models_are_told_apart() -> None:
    cells = [counted(n, workload=f"{m}:make", batch_size=b) for m, n in (("a", 5), ("b", 7)) for b in (2, 4)]
    assert [line.model for line in lines(comparison(*cells), PEAK, "batch_size")] == ["a:make", "b:make"]


def test_names_that_nothing_else_has_stay_short_and_a_small_count_is_told_to_the_last() -> None:
    workloads = ("SimpleBigModel", "a.b:make", "a.b:net")
    configs = [ExperimentConfig(workload=workload) for workload in workloads]
    assert list(distinct_names(configs).values()) == ["auto", "make", "net"]
    assert (short_count(837), short_count(1_230_000)) == ("837", "1.23M")
