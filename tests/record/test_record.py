import dataclasses
import json
import math
import re
from typing import Any

import example_ledger
import pytest

from dpprof.errors import DpprofError
from dpprof.json_files import typed
from dpprof.record.counters import CounterResult, CounterRow
from dpprof.record.record import (
    Ceilings,
    Failure,
    FailureKind,
    GradientCheck,
    Memory,
    OperatorRow,
    Pace,
    ParameterGroup,
    PassOutcome,
    PassStatus,
    PrivacyResult,
    RankResult,
    Record,
    VerifyCheck,
    VerifyResult,
)

MEMORY = Memory(
    peak_allocated=8,
    peak_reserved=16,
    first_step_peak=9,
    phase_peak={"forward": 7},
    step_peak=[7, 8],
    after_step=4,
    after_cleanup=3,
    device_used=100,
    peak_rss=2**40,
)


def full_record() -> Record:
    failed = PassOutcome(PassStatus.FAILED, "why", 2.5)
    return Record(
        config={"trainer": "StandardTrainer", "lr": 0.1, "batch_size": 4},
        environment={"cpu": "größer"},
        passes={"clean": PassOutcome(PassStatus.FINISHED, None, 1.5), "trace": failed},
        num_parameters=10,
        parameters=[ParameterGroup("Linear.weight", 2, 10, trains=True, per_sample=False, moved=True)],
        changed=["train=*.weight: 10 of 12 parameters train"],
        ranks=[RankResult(0, 8, "noise", [0.1], {"noise": [0.1]}, [0.05], 1, "here"), RankResult(1)],
        samples_per_step=4,
        tokens_per_step=64,
        startup_s=0.1,
        step_samples=[4, 3],
        timed_s=0.31,
        involuntary_switches=7,
        others_processor_s=0.02,
        nonfinite_losses=2,
        ended_at=1.5,
        step_s=[0.1, 0.2],
        alone_step_s=[0.05, 0.06],
        phase_s={"forward": [0.05, 0.06]},
        memory=MEMORY,
        held={"gradients": 40},
        operators=[
            OperatorRow("aten::mm", "matrix_product", "forward", 3, 1e-3, 2e-3, 64),
            OperatorRow("aten::add", "elementwise", None, 1, 1e-4, None, 0),
        ],
        traced_steps=3,
        ledger=example_ledger.ledger(),
        pace=Pace([0.5, 0.25], [0.1, 0.05]),
        ceilings=Ceilings(2e10, 1e11, "fp32"),
        counters=CounterResult(
            [CounterRow("gemm", "matrix_product", "forward", 2, 1e-3, {"dram__bytes_read.sum": 64.0})],
            {"version": "2024.1"},
            {"x__y.sum": "the report has none of it"},
        ),
        gradient_check=GradientCheck(1e-16, 1e-7, 5e-3, "float32", True, "wrong", "unknown"),
        verify=VerifyResult(
            [VerifyCheck("sensitivity_huge", "pass", "it moves the sum", 1.0, 1.003, 0.5)],
            2.5,
            1.001,
            284,
            True,
            "unknown",
        ),
        privacy=PrivacyResult(1.0, 0.01, 300, 1e-6, 2.5, "prv", "", ["batches have a fixed size"]),
        warnings=["the model holds parameters"],
        unbounded=["clipping does not bound it"],
    )


def as_json(data: Record | Failure, **changes: Any) -> Any:
    """What a file that holds the data is read as."""
    return json.loads(json.dumps(dataclasses.asdict(data))) | changes


@pytest.mark.parametrize("record", [Record({}, {}), full_record()], ids=["empty", "full"])
def test_a_record_survives_its_file(record: Record) -> None:
    assert Record.from_data(as_json(record)) == record


def test_the_full_record_sets_every_field() -> None:
    full, empty = full_record(), Record({}, {})
    unset = {name for name, value in vars(full).items() if value == getattr(empty, name)}
    assert unset == {"schema_version"}
    assert None not in vars(MEMORY).values()


def test_a_failure_survives_its_file() -> None:
    failure = Failure(FailureKind.ERROR, "a\nb", "Traceback", MEMORY, 1)
    assert typed(Failure, as_json(failure)) == failure


DONE = PassOutcome(PassStatus.FINISHED)


@pytest.mark.parametrize(
    ("passes", "headline_finished", "failed", "skipped"),
    [
        ({}, False, {}, {}),
        ({"clean": PassOutcome(PassStatus.RUNNING)}, False, {"clean": "it did not finish"}, {}),
        ({"clean": PassOutcome(PassStatus.FAILED, "boom")}, False, {"clean": "boom"}, {}),
        ({"clean": DONE, "trace": PassOutcome(PassStatus.FAILED, "x")}, True, {"trace": "x"}, {}),
        ({"clean": DONE, "counters": PassOutcome(PassStatus.SKIPPED, "y")}, True, {}, {"counters": "y"}),
    ],
)
def test_the_clean_pass_alone_decides_whether_figures_stand(
    passes: dict[str, PassOutcome], headline_finished: bool, failed: dict[str, str], skipped: dict[str, str]
) -> None:
    record = Record({}, {}, passes=passes)
    assert record.headline_finished is headline_finished
    assert (record.failed_passes, record.skipped_passes) == (failed, skipped)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schema_version": 7}, "it has schema version 7, this dpprof reads 2"),
        ({"unheard_of": 1}, "unheard_of is unknown to this dpprof"),
        ({"memory": {"unheard_of": 1}}, "memory.unheard_of is unknown"),
        ({"memory": None}, "memory should be"),
        ({"step_s": [0.5, "1"]}, "step_s.1 should be a valid number"),
        ({"num_parameters": True}, "num_parameters should be a valid integer"),
        ({"operators": [{"name": "mm"}]}, "operators.0.operator_class is missing"),
        ({"pace": {"step_s": [1.0], "fixed_s": []}}, "pace: 1 steps, but 0 fixed"),
    ],
)
def test_a_damaged_record_is_told_by_its_field(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(DpprofError, match=f"^{re.escape(why)}"):
        Record.from_data(as_json(full_record(), **changes))


@pytest.mark.parametrize("data", [None, [], {}])
def test_what_is_no_record_or_failure_is_refused(data: object) -> None:
    with pytest.raises(DpprofError, match=r"^it is no record"):
        Record.from_data(data)
    with pytest.raises(DpprofError, match=r"^it should|is missing$"):
        typed(Failure, data)


def test_numbers_that_are_none_stay_readable() -> None:
    record = dataclasses.replace(full_record(), timed_s=math.inf, step_s=[math.nan, -math.inf])
    again = Record.from_data(as_json(record))
    assert (again.timed_s, again.step_s[1]) == (math.inf, -math.inf)
    assert math.isnan(again.step_s[0])


def test_a_record_from_before_a_field_can_be_read() -> None:
    data = as_json(full_record())
    del data["nonfinite_losses"], data["counters"], data["privacy"], data["warnings"]
    again = Record.from_data(data)
    assert (again.nonfinite_losses, again.counters, again.privacy, again.warnings) == (None, None, None, [])
