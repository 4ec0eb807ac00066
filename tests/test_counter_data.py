import dataclasses
import json

import pytest

from dpprof.counter_data import CounterResult, CounterRow, total


def row(launches: int, seconds: float, **values: float) -> CounterRow:
    return CounterRow(
        "k", "copy", "forward", launches, seconds, {n.replace("_DOT_", "."): v for n, v in values.items()}
    )


def test_sums_are_added_and_percentages_averaged_over_time() -> None:
    rows = [
        row(1, 3.0, b_DOT_sum=10, p_DOT_pct=50, m_DOT_max=4),
        row(2, 1.0, b_DOT_sum=5, p_DOT_pct=90, m_DOT_max=9),
    ]
    found = total("all", "", None, rows)
    assert found == CounterRow("all", "", None, 3, 4.0, {"b.sum": 15, "p.pct": 60.0, "m.max": 9})


def test_totals_of_totals_are_totals() -> None:
    rows = [row(1, s, b_DOT_sum=s, p_DOT_pct=10 * s) for s in (1.0, 2.0, 5.0)]
    at_once = total("x", "", None, rows)
    in_turns = total("x", "", None, [total("y", "", None, rows[:2]), rows[2]])
    assert in_turns.values == pytest.approx(at_once.values)


def test_what_one_row_lacks_the_total_lacks() -> None:
    assert total("x", "", None, [row(1, 1.0, a_DOT_sum=1), row(1, 1.0)]).values == {}
    assert total("x", "", None, []).values == {}


def test_json_round_trip() -> None:
    result = CounterResult([row(1, 1.0, a_DOT_sum=1)], {"version": "2024.1"}, {"b.sum": "why"})
    assert CounterResult.from_dict(json.loads(json.dumps(dataclasses.asdict(result)))) == result
