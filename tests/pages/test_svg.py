"""Where the parts of a chart come to lie, by arithmetic."""

import re

import pytest

from dpprof.pages import svg
from dpprof.pages.svg import Scale


def test_a_scale_puts_values_between_its_ends() -> None:
    linear = Scale(0, 200, 10, 110)
    assert [linear.at(value) for value in (0, 50, 200)] == [10, 35, 110]
    upwards = Scale(1, 100, 300, 100, is_log=True)
    assert [upwards.at(value) for value in (1, 10, 100)] == pytest.approx([300, 200, 100])


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(0, 10, 0, 1), [0, 2, 4, 6, 8, 10]),
        (Scale(0, 0.3, 0, 1), [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        (Scale(0, 1234, 0, 1), [0, 500, 1000]),
        (Scale(0.5, 2000, 0, 1, is_log=True), [1, 10, 100, 1000]),
        (Scale(0.09, 2.1, 0, 1, is_log=True), [0.1, 0.2, 0.5, 1, 2]),
        (Scale(2.1, 4.4, 0, 1, is_log=True), [2.5, 3, 3.5, 4]),
    ],
)
def test_ticks_are_round(scale: Scale, ticks: list[float]) -> None:
    assert scale.ticks() == pytest.approx(ticks)
    assert all("e" not in svg.tick(value) for value in scale.ticks())


def test_a_scale_from_zero_ends_at_a_round_value_above_all() -> None:
    scale = svg.from_zero([3, 97], 0, 1)
    assert (scale.low, scale.high) == (0, 100)
    assert svg.from_zero([100], 0, 1).high == 120, "with room above"
    assert svg.from_zero([], 0, 1).high > 0
    assert svg.from_zero([0.0], 0, 1).high > 0


def test_a_logarithmic_scale_leaves_room_on_both_sides() -> None:
    scale = svg.logarithmic([1, 1000], 0, 320, room=0.1)
    assert [scale.at(value) for value in (1, 1000)] == pytest.approx([10, 310])


def test_marks_and_lines_lie_where_their_values_are() -> None:
    x, y = Scale(0, 10, 0, 100), Scale(0, 10, 100, 0)
    assert 'transform="translate(50 20) scale(6)"' in svg.mark("circle", x.at(5), y.at(8), "#112233")
    drawn = svg.line([(x.at(0), y.at(0)), (x.at(1), y.at(1 / 3))], color="#112233", dash="7 4")
    assert 'd="M0,100L10,96.67"' in drawn
    assert 'style="stroke: #112233" stroke-dasharray="7 4"' in drawn


def test_axes_name_their_values_and_leave_out_those_that_would_touch() -> None:
    drawn = svg.axes(
        Scale(0, 1000, 60, 560), Scale(0, 2, 300, 0), "batch", "MiB", x_ticks=[2, 4, 8, 500, 1000]
    )
    labels = re.findall(r'<text x="([\d.]+)" y="318" text-anchor="middle" class="tick">([^<]*)<', drawn)
    assert labels == [("61", "2"), ("310", "500"), ("560", "1,000")]
    assert drawn.count('class="grid"') == 5 + 5
    assert re.findall(r'y="([\d.]+)" text-anchor="end" class="tick">([^<]*)<', drawn)[:2] == [
        ("304.5", "0"),
        ("229.5", "0.5"),
    ]
    assert ">batch</text>" in drawn
    assert ">MiB</text>" in drawn


def test_texts_from_outside_are_escaped() -> None:
    evil = "</title><script>\"'&"
    for drawn in (svg.mark("x", 0, 0, "#000000", evil), svg.label(0, 0, evil), svg.chart(evil)):
        assert "<script" not in drawn
        assert "&lt;script&gt;&#34;&#39;&amp;" in drawn
