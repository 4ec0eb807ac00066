"""The growth chart draws every trainer, also one that the table does not list."""

import dataclasses

from example_results import comparison, result

from dpprof.reports.comparison.growth import Line, growth
from dpprof.reports.comparison.growth_chart import growth_figure
from dpprof.vocabulary.trainers import STANDARD, TRAINERS, UNLISTED_COLOR


def test_every_trainer_has_a_colour_and_a_symbol_of_its_own() -> None:
    cells = [result(step_s=0.1 * b, peak_mib=100 + 7 * b, batch_size=b, seq_len=64) for b in (2, 4)]
    of_standard = [*growth(comparison(*cells))]
    found = [of(trainer, line) for trainer in ("LoopTrainer", *TRAINERS) for line in of_standard]
    figure = growth_figure(found)
    assert figure is not None
    looks = {trace.name: (trace.line.color, trace.marker.symbol) for trace in figure.data}
    assert looks["LoopTrainer"][0] == UNLISTED_COLOR
    assert looks[STANDARD][0] == TRAINERS[STANDARD].color
    assert len(set(looks.values())) == len(looks) == 1 + len(TRAINERS)
    alone = growth_figure([of("DPSGDTrainer", line) for line in of_standard])
    assert alone is not None
    assert alone.data[0].marker.symbol == looks["DPSGDTrainer"][1], "whichever others are drawn"


def of(trainer: str, line: Line) -> Line:
    return dataclasses.replace(line, trainer=trainer)
