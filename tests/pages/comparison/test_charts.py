"""The charts of the comparison page: memory against time, and growth."""

import dataclasses
import re

import pytest
from example_results import comparison, result

from dpprof.findings.comparison.growth import Line, growth
from dpprof.pages.comparison.charts import growth_charts, memory_against_time
from dpprof.pages.document import Keyed
from dpprof.record.figures.names import STEP
from dpprof.record.figures.results import Result
from dpprof.vocabulary.trainer_info import UNLISTED_COLOR
from dpprof.vocabulary.trainers import STANDARD, TRAINERS


def chart(*results: Result) -> str | None:
    found = comparison(*results)
    (model,) = found.by_model
    return memory_against_time(found, model)


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


def test_figures_far_apart_are_drawn_by_their_logarithms_and_one_point_not_at_all() -> None:
    drawn = chart(*(result(t, step_s=s, peak_mib=5 * s) for t, s in ((STANDARD, 1), ("DPSGDTrainer", 100))))
    assert drawn is not None
    assert drawn.count("logarithmic") == 2
    assert "step time [ms], logarithmic" in drawn
    assert chart(result(step_s=0.1, peak_mib=10)) is None
    assert chart(result(step_s=0.1), result("DPSGDTrainer", step_s=0.1)) is None


def test_a_few_places_are_named_and_many_are_not() -> None:
    def named(count: int) -> list[str]:
        cells = [
            result(trainer, step_s=0.1 * 2**power, peak_mib=100 * 2**power + 50 * i, batch_size=2**power)
            for i, trainer in enumerate(("StandardTrainer", "DPSGDTrainer"))
            for power in range(1, count + 1)
        ]
        drawn = chart(*cells)
        assert drawn is not None
        return re.findall(r">(b\d+ s\d+)</text>", drawn)

    assert named(3)[:2] == ["b2 s512", "b4 s512"]
    assert named(7) == []


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
        seen = looks(one.svg)
        assert seen["LoopTrainer"][0] == UNLISTED_COLOR
        assert seen[STANDARD][0] == TRAINERS[STANDARD].color
        assert len(set(seen.values())) == len({path for _, path in seen.values()}) == 1 + len(TRAINERS)
        assert one.svg.count('class="mark"') == len(BATCHES) * (1 + len(TRAINERS))
    alone = growth_charts([of("DPSGDTrainer", line) for line in lines()])
    assert looks(alone[0].svg)["DPSGDTrainer"] == looks(charts[0].svg)["DPSGDTrainer"], "whichever others"


def test_each_place_has_a_dash_and_each_model_charts_of_its_own() -> None:
    (line,) = (line for line in lines() if line.metric == STEP)
    charts = growth_charts(
        [line, of(STANDARD, line, place="sequence 128"), of(STANDARD, line, model="large")]
    )
    assert [one.title.partition(":")[0] for one in charts] == ["tiny", "large"]
    assert "batch 8: 800.0 ms</title>" in charts[0].svg
    assert [text.text for text in charts[0].legend if isinstance(text, Keyed)] == [line.place, "sequence 128"]
    assert charts[0].svg.count("stroke-dasharray") == 1, "the first place has a solid line"
    assert growth_charts([]) == []
