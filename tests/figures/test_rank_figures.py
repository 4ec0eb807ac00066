"""Figures of several ranks."""

import pytest

from dpprof.figures.ranks import RanksFigures
from dpprof.record.record import RankResult, Record


def test_efficiency_is_a_ratio_of_throughputs_and_imbalance_one_of_times() -> None:
    """Alone, ranks that take 100 and 300 ms do 10 + 3.3 steps a second; together 2 in 300 ms, 6.7."""
    ranks = [
        RankResult(rank, 8, "noise", step_s=[0.3], alone_step_s=[alone_s])
        for rank, alone_s in enumerate((0.1, 0.3))
    ]
    found = RanksFigures.of(Record({}, {}, ranks=ranks))
    assert found is not None
    assert found.efficiency_pct == pytest.approx(50)
    assert found.imbalance == pytest.approx(1.5)
