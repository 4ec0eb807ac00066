"""FLOPs in theory beside those that were counted."""

import pytest
from example_results import comparison, result

from dpprof.figures.names import FLOPS_IN_THEORY, FLOPS_OF_LAYERS
from dpprof.reports.comparison.data import compute
from dpprof.reports.comparison.flops import flop_rows
from dpprof.reports.comparison.markdown import to_markdown
from dpprof.reports.comparison.page import render


def test_theory_beside_what_was_counted() -> None:
    found = comparison(*(result(trainer, step_s=0.1) for trainer in ("StandardTrainer", "DPSGDTrainer")))
    assert flop_rows(found) == []
    for cell, theory, counted in zip(found.cells, (3e9, 4e9), (3e9, 4.1e9), strict=True):
        cell.figures.update({FLOPS_IN_THEORY: theory, FLOPS_OF_LAYERS: counted})
    first, second = flop_rows(found)
    assert (first.ratio, first.in_theory, first.off_pct) == (1.0, 3.0, 0.0)
    assert second.ratio == pytest.approx(4 / 3)
    assert second.off_pct == pytest.approx(2.5)
    data = compute(found)
    assert "FLOPs of a step, attention apart" in to_markdown(data)
    assert 'id="flops"' in render(data)
