import pytest

from dpprof.record.counters import CounterRow, total


def row(launches: int, seconds: float, values: dict[str, float]) -> CounterRow:
    return CounterRow("k", "copy", "forward", launches, seconds, values)


def test_over_launches_sums_and_averages_over_units_add_up() -> None:
    """An average over the units of a chip is a sum divided by their number, which stays."""
    rows = [row(1, 3.0, {"b.sum": 10, "c.avg": 4}), row(2, 1.0, {"b.sum": 5, "c.avg": 1})]
    assert total("all", "", None, rows) == CounterRow("all", "", None, 3, 4.0, {"b.sum": 15, "c.avg": 5})


def test_percentages_of_a_peak_and_rates_are_averaged_over_time() -> None:
    names = ("p.avg.pct_of_peak_sustained_elapsed", "r.avg.per_second")
    rows = [row(1, s, dict.fromkeys(names, v)) for s, v in ((3.0, 50.0), (1.0, 90.0))]
    assert total("all", "", None, rows).values == dict.fromkeys(names, 60.0)


def test_what_cannot_be_combined_has_no_total() -> None:
    """A hit rate says nothing of the number of lookups, a maximum over units nothing of other launches."""
    several = [row(1, 1.0, {"h.pct": 50, "m.max": 4, "m.min": 1, "r.ratio": 2}) for _ in range(2)]
    assert total("all", "", None, several).values == {}
    assert total("all", "", None, several[:1]).values == several[0].values


def test_totals_of_totals_are_totals() -> None:
    rows = [row(1, s, {"b.sum": s, "p.pct_of_peak_elapsed": 10 * s}) for s in (1.0, 2.0, 5.0)]
    at_once = total("x", "", None, rows)
    in_turns = total("x", "", None, [total("y", "", None, rows[:2]), rows[2]])
    assert in_turns.values == pytest.approx(at_once.values)


def test_what_one_row_lacks_the_total_lacks() -> None:
    assert total("x", "", None, [row(1, 1.0, {"a.sum": 1}), row(1, 1.0, {})]).values == {}
    assert total("x", "", None, []).values == {}
    names = ("p.avg.pct_of_peak_sustained_elapsed", "b.sum")
    rows = [row(1, 0.0, dict.fromkeys(names, 3.0)) for _ in range(2)]
    assert total("all", "", None, rows).values == {"b.sum": 6.0}, "nothing is averaged over no time"
