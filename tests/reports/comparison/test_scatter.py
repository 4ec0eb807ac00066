import re

import pytest
from example_results import comparison, result

from dpprof.figures.results import Result
from dpprof.reports.comparison.rows import rows_by_model
from dpprof.reports.comparison.scatter import memory_against_time


def chart(*results: Result) -> str | None:
    (group,) = rows_by_model(comparison(*results))
    return memory_against_time(group)


def test_every_cell_with_both_figures_is_a_point_at_its_figures() -> None:
    cells = [
        result(step_s=0.01, peak_mib=10),
        result("DPSGDTrainer", step_s=0.03, peak_mib=40),
        result("DPGhostClippingTrainer", step_s=0.02, peak_mib=20),
        result("DPFastGradientClippingTrainer", step_s=0.02),
    ]
    drawn = chart(*cells)
    assert drawn is not None
    points = {
        trainer: (float(x), float(y))
        for x, y, trainer in re.findall(r"translate\(([\d.]+) ([\d.]+)\)[^>]*><title>(\w+)", drawn)
    }
    standard, flat, ghost = (points[cell.config.trainer] for cell in cells[:3])
    assert len(points) == 3
    assert flat[0] - ghost[0] == pytest.approx(ghost[0] - standard[0], abs=0.02)
    assert ghost[1] - flat[1] == pytest.approx(2 * (standard[1] - ghost[1]), abs=0.02)
    assert "40.0 MiB, 4.00 x standard" in drawn
    assert drawn.count('class="line join"') == 1


def test_figures_far_apart_are_drawn_by_their_logarithms() -> None:
    cells = [result(t, step_s=s, peak_mib=5 * s) for t, s in (("StandardTrainer", 1), ("DPSGDTrainer", 100))]
    drawn = chart(*cells)
    assert drawn is not None
    assert drawn.count("logarithmic") == 2
    assert "step time [ms], logarithmic" in drawn


def test_a_few_places_are_named_and_many_are_not() -> None:
    def places(count: int) -> str:
        batches = [2**i for i in range(1, count + 1)]
        drawn = chart(
            *(
                result(t, step_s=0.1 * b, peak_mib=100 * b + 50 * i, batch_size=b)
                for i, t in enumerate(("StandardTrainer", "DPSGDTrainer"))
                for b in batches
            )
        )
        assert drawn is not None
        return drawn

    assert re.findall(r">(b\d+ s\d+)</text>", places(3))[:2] == ["b2 s512", "b4 s512"]
    assert re.findall(r">(b\d+ s\d+)</text>", places(7)) == []


def test_one_point_makes_no_chart() -> None:
    assert chart(result(step_s=0.1, peak_mib=10)) is None
    assert chart(result(step_s=0.1), result("DPSGDTrainer", step_s=0.1)) is None
