from dataclasses import dataclass

import pytest

from dpprof.findings.comparison.cell import median_of


@dataclass
class Part:
    ms: float | None
    mib: dict[str, float]
    inner: "Part | None" = None


def test_of_several_runs_the_median_of_each_figure_is_taken_of_those_that_have_it() -> None:
    runs = [
        Part(1.0, {"a": 1.0}, Part(7.0, {})),
        Part(2.0, {"a": 4.0, "b": 9.0}),
        Part(None, {"a": 2.0}, Part(9.0, {})),
    ]
    assert median_of(runs) == Part(1.5, {"a": 2.0, "b": 9.0}, Part(8.0, {}))


@pytest.mark.parametrize("one", [3, 0.1, {"a": 0.1}, {}, Part(None, {}), {"x": Part(0.1, {"a": 2})}])
def test_of_one_run_figures_are_its_own(one: object) -> None:
    assert median_of([one]) == one
