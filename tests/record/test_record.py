"""A run's record, its step's timeline and its counters as plain data."""

import dataclasses
import json
import math
import re
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import example_ledger
import pytest

from dpprof.errors import DpprofError
from dpprof.json_files import typed
from dpprof.record.counters import CounterRow, total
from dpprof.record.ledger import StepTimeline
from dpprof.record.record import SCHEMA_VERSION, Failure, PassOutcome, PassStatus, Record

PLAIN = {bool: True, int: 7, float: 2.5, str: "größer", Any: 0.5}


def filled(kind: Any) -> Any:
    """A value of a type, each of its parts another than by default."""
    parts = [part for part in get_args(kind) if part is not type(None)]
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{each.name: filled(hints[each.name]) for each in dataclasses.fields(kind)})  # type: ignore[operator]
    if get_origin(kind) is dict:
        return {filled(parts[0]): filled(parts[1])}
    if get_origin(kind) is list:
        return [filled(parts[0])]
    if get_origin(kind) is UnionType:
        return filled(parts[0])
    return list(kind)[-1] if isinstance(kind, type) and issubclass(kind, Enum) else PLAIN[kind]


def full_record() -> Record:
    made: Record = filled(Record)
    return dataclasses.replace(made, schema_version=SCHEMA_VERSION)


def as_json(data: Record | Failure, **changes: Any) -> Any:
    """What a file that holds the data is read as."""
    return json.loads(json.dumps(dataclasses.asdict(data))) | changes


def test_records_and_failures_survive_their_files() -> None:
    for record in (Record({}, {}), full_record()):
        assert Record.from_data(as_json(record)) == record
    failure = filled(Failure)
    assert typed(Failure, as_json(failure)) == failure


DONE, RUNS = PassOutcome(PassStatus.FINISHED), PassOutcome(PassStatus.RUNNING)
FAILED, SKIPPED = PassOutcome(PassStatus.FAILED, "x"), PassOutcome(PassStatus.SKIPPED, "y")


@pytest.mark.parametrize(
    ("passes", "stands", "failed", "skipped"),
    [
        ({}, False, {}, {}),
        ({"clean": RUNS}, False, {"clean": "it did not finish"}, {}),
        ({"clean": FAILED}, False, {"clean": "x"}, {}),
        ({"clean": DONE, "trace": FAILED, "counters": SKIPPED}, True, {"trace": "x"}, {"counters": "y"}),
    ],
)
def test_the_clean_pass_alone_decides_whether_figures_stand(
    passes: dict[str, PassOutcome], stands: bool, failed: dict[str, str], skipped: dict[str, str]
) -> None:
    record = Record({}, {}, passes=passes)
    assert record.headline_finished is stands
    assert (record.failed_passes, record.skipped_passes) == (failed, skipped)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schema_version": 7}, "it has schema version 7, this dpprof reads 2"),
        ({"unheard_of": 1}, "unheard_of is unknown to this dpprof"),
        ({"memory": {"unheard_of": 1}}, "memory.unheard_of is unknown"),
        ({"step_s": [0.5, "1"]}, "step_s.1 should be a valid number"),
        ({"operators": [{"name": "mm"}]}, "operators.0.operator_class is missing"),
        ({"pace": {"step_s": [1.0], "fixed_s": []}}, "pace: 1 steps, but 0 fixed"),
    ],
)
def test_a_damaged_record_is_told_by_its_field(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(DpprofError, match=f"^{re.escape(why)}"):
        Record.from_data(as_json(full_record(), **changes))


def test_what_is_no_record_or_failure_is_refused() -> None:
    no_records: list[Any] = [None, [], {}]
    for data in no_records:
        with pytest.raises(DpprofError, match=r"^it is no record"):
            Record.from_data(data)
        with pytest.raises(DpprofError, match=r"^it should|is missing$"):
            typed(Failure, data)


def test_a_record_with_numbers_that_are_none_and_from_before_a_field_can_be_read() -> None:
    data = as_json(full_record(), timed_s=math.inf, step_s=[math.nan, -math.inf])
    del data["nonfinite_losses"], data["counters"], data["privacy"], data["warnings"]
    again = Record.from_data(data)
    assert (again.timed_s, again.step_s[1]) == (math.inf, -math.inf)
    assert math.isnan(again.step_s[0])
    assert (again.nonfinite_losses, again.counters, again.privacy, again.warnings) == (None, None, None, [])


MIB = example_ledger.MIB


def test_what_is_alive_after_an_event_is_replayed() -> None:
    timeline = example_ledger.timeline()
    levels = [4, 12, 16, 12, 28, 30, 22, 20, 20]
    alive = [[*timeline.alive_after(event).values()] for event in range(-1, 8)]
    assert [sum(row.num_bytes for row in rows) for rows in alive] == [MIB * level for level in levels]
    assert [row.category for row in alive[-1]] == ["summed_gradients", "parameters"]
    assert [row.num_bytes // MIB for row in timeline.tensors] == [16, 8, 4, 2], "largest first, at the peak"
    assert timeline.num_tensors == 4


def test_a_file_without_storages_is_refused() -> None:
    data = example_ledger.timeline().to_dict()
    del data["storages"]
    with pytest.raises(DpprofError, match="storages is missing"):
        StepTimeline.from_dict(data)


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
