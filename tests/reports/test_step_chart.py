"""The chart of a step as SVG paths, walked as a browser does."""

import re

import example_ledger
import pytest

from dpprof.reports import levels, step_chart

LEVELS = levels.compute(example_ledger.timeline(), {"forward": 0.05, "backward": 0.1})


def walk(path: str) -> list[tuple[int, int]]:
    """The corners of a path along steps."""
    x, y, corners = 0, step_chart.HEIGHT, []
    for axis, value in re.findall(r"([HV])(\d+)", path):
        x, y = (int(value), y) if axis == "H" else (x, int(value))
        corners.append((x, y))
    return corners


def test_each_area_reaches_as_high_as_all_below_it_together() -> None:
    chart = step_chart.compute(LEVELS)
    mib_per_unit = 1.2 * 30 / step_chart.HEIGHT
    highest = {
        area.category: (step_chart.HEIGHT - min(y for _, y in walk(area.path))) * mib_per_unit
        for area in chart.areas
    }
    assert list(highest) == list(LEVELS.mib)[::-1]
    expected = {
        "parameters": 4,
        "activations": 12,
        "summed_gradients": 20,
        "per_sample_gradients": 28,
        "temporary": 30,
    }
    assert highest == pytest.approx(expected, abs=2 * mib_per_unit)


def test_a_level_holds_until_the_next() -> None:
    chart = step_chart.compute(LEVELS)
    parameters, activations = chart.areas[-1], chart.areas[-2]
    assert walk(parameters.path)[:2] == [(0, 711), (step_chart.WIDTH, 711)]
    rise = round(step_chart.WIDTH * 12.5 / 150)
    assert walk(activations.path)[:3] == [(0, 711), (rise, 711), (rise, 533)]


def test_ticks_bands_and_the_peak_lie_where_they_belong() -> None:
    chart = step_chart.compute(LEVELS)
    assert [band.text for band in chart.bands] == ["forward", "backward"]
    assert [band.pct for band in chart.bands] == pytest.approx([0, 100 / 3])
    assert [band.width_pct for band in chart.bands] == pytest.approx([100 / 3, 200 / 3])
    assert chart.peak_x_pct == pytest.approx(100 * (50 + 100 * 8 / 18) / 150)
    assert chart.peak_y_pct == pytest.approx(100 / 1.2)
    for tick in chart.x_ticks:
        assert tick.pct == pytest.approx(100 * float(tick.text) / 150)


def test_a_step_in_which_nothing_is_alive() -> None:
    nothing = levels.compute(
        example_ledger.timeline(
            start={}, seconds=[], category=[], num_bytes=[], moved_to=[], peak_event=-1, phases=[]
        ),
        {},
    )
    assert step_chart.compute(nothing).areas == []
