"""The charts of growth draw every measured point of every trainer, also one that the table does not list."""

import dataclasses
import re

import pytest
from example_results import comparison, result

from dpprof.figures.names import PEAK, STEP
from dpprof.reports.comparison.growth import Line, growth
from dpprof.reports.comparison.growth_chart import growth_charts
from dpprof.vocabulary.trainers import STANDARD, TRAINERS, UNLISTED_COLOR

BATCHES = (2, 4, 8)


def lines() -> list[Line]:
    cells = [result(step_s=0.1 * b, peak_mib=100 + 10 * b, batch_size=b, seq_len=64) for b in BATCHES]
    return list(growth(comparison(*cells)))


def of(trainer: str, line: Line, **more: str) -> Line:
    return dataclasses.replace(line, trainer=trainer, **more)  # type: ignore[arg-type]


def looks(chart: str) -> dict[str, tuple[str, str]]:
    """The colour and the path of each trainer's marks."""
    found = re.findall(
        r'<path d="([^"]*)" transform="[^"]*" class="mark" style="fill: (#\w+)"><title>(\w+)', chart
    )
    return {trainer: (color, path) for path, color, trainer in found}


def test_every_trainer_has_a_colour_and_a_symbol_of_its_own() -> None:
    charts = growth_charts([of(trainer, line) for trainer in ("LoopTrainer", *TRAINERS) for line in lines()])
    assert len(charts) == 2, "memory and time along the batch"
    for one in charts:
        seen = looks(one.chart)
        assert seen["LoopTrainer"][0] == UNLISTED_COLOR
        assert seen[STANDARD][0] == TRAINERS[STANDARD].color
        assert len(set(seen.values())) == len({path for _, path in seen.values()}) == 1 + len(TRAINERS)
        assert one.chart.count('class="mark"') == len(BATCHES) * (1 + len(TRAINERS))
    alone = growth_charts([of("DPSGDTrainer", line) for line in lines()])
    assert looks(alone[0].chart)["DPSGDTrainer"] == looks(charts[0].chart)["DPSGDTrainer"], "whichever others"


def test_points_lie_on_the_scale_of_their_axes() -> None:
    (memory,) = (
        one for one, line in zip(growth_charts(lines()), lines(), strict=True) if line.metric == PEAK
    )
    drawn = re.findall(r'transform="translate\(([\d.]+) ([\d.]+)\)', memory.chart)
    x, y = ([float(place[i]) for place in drawn] for i in (0, 1))
    assert (x[1] - x[0]) * 2 == pytest.approx(x[2] - x[1], abs=0.02), "from 2 to 4, from 4 to 8"
    assert (y[1] - y[0]) * 2 == pytest.approx(y[2] - y[1], abs=0.02)
    assert "batch 8: 180.0 MiB</title>" in memory.chart


def test_each_place_has_a_dash_and_each_model_charts_of_its_own() -> None:
    (line,) = (line for line in lines() if line.metric == STEP)
    charts = growth_charts(
        [line, of(STANDARD, line, place="sequence 128"), of(STANDARD, line, model="large")]
    )
    assert [one.model for one in charts] == ["tiny", "large"]
    assert len(set(charts[0].dashes.values())) == 2
    assert charts[0].chart.count("stroke-dasharray") == 1, "the first place has a solid line"
    assert growth_charts([]) == []
