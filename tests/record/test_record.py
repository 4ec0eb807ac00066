import dataclasses
import json
import math
import re
from typing import Any

import example_ledger
import pytest

from dpprof.errors import DpprofError
from dpprof.record.counters import CounterResult, CounterRow
from dpprof.record.privacy import PrivacyResult
from dpprof.record.record import (
    Ceilings,
    Failure,
    GradientCheck,
    Memory,
    OperatorRow,
    Pace,
    ParameterGroup,
    PassOutcome,
    RankResult,
    Record,
)
from dpprof.record.verify import VerifyCheck, VerifyResult


def full_memory() -> Memory:
    return Memory(
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
    return Record(
        config={"trainer": "StandardTrainer", "lr": 0.1, "batch_size": 4},
        environment={"cpu": "größer"},
        passes={"clean": PassOutcome("finished", None, 1.5), "trace": PassOutcome("failed", "why", 2.5)},
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
        memory=full_memory(),
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
    )


@pytest.mark.parametrize("record", [Record({}, {}), full_record()], ids=["empty", "full"])
def test_a_record_survives_its_file(record: Record) -> None:
    assert Record.from_json(record.to_json()) == record


def test_the_full_record_sets_every_field() -> None:
    full, empty = full_record(), Record({}, {})
    unset = {name for name, value in vars(full).items() if value == getattr(empty, name)}
    assert unset == {"schema_version"}
    assert None not in vars(full.memory).values()


@pytest.mark.parametrize(
    "failure", [Failure("oom", "no memory"), Failure("error", "a\nb", "Traceback", full_memory(), 1)]
)
def test_a_failure_survives_its_file(failure: Failure) -> None:
    assert Failure.from_json(failure.to_json()) == failure


@pytest.mark.parametrize(
    ("passes", "headline_finished", "failed"),
    [
        ({}, False, {}),
        ({"clean": PassOutcome("running")}, False, {"clean": "it did not finish"}),
        ({"clean": PassOutcome("failed", "boom")}, False, {"clean": "boom"}),
        ({"clean": PassOutcome("finished"), "trace": PassOutcome("failed", "x")}, True, {"trace": "x"}),
    ],
)
def test_the_clean_pass_alone_decides_whether_figures_stand(
    passes: dict[str, PassOutcome], headline_finished: bool, failed: dict[str, str]
) -> None:
    record = Record({}, {}, passes=passes)
    assert record.headline_finished is headline_finished
    assert record.failed_passes == failed


def test_another_schema_version_is_refused_by_number() -> None:
    text = dataclasses.replace(full_record(), schema_version=7).to_json()
    with pytest.raises(DpprofError, match=r"^it has schema version 7, this dpprof reads 2$"):
        Record.from_json(text)


def changed(text: str, **changes: Any) -> str:
    return json.dumps(json.loads(text) | changes)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is no valid JSON (Expecting value: line 1 column 1 (char 0))"),
        ("null", "it is no record of dpprof's"),
        ("[]", "it is no record of dpprof's"),
        ("{}", "it is no record of dpprof's"),
        (full_record().to_json()[:-20], "it is no valid JSON ("),
        (changed(full_record().to_json(), unheard_of=1), "unheard_of is unknown to this dpprof"),
        (changed(full_record().to_json(), memory={"unheard_of": 1}), "memory.unheard_of is unknown"),
        (changed(full_record().to_json(), memory=None), "memory should be"),
        (changed(full_record().to_json(), passes=[]), "passes should be"),
        (changed(full_record().to_json(), step_s=[0.5, "1"]), "step_s.1 should be a valid number"),
        (
            changed(full_record().to_json(), num_parameters=True),
            "num_parameters should be a valid integer",
        ),
        (
            changed(full_record().to_json(), operators=[{"name": "mm"}]),
            "operators.0.operator_class is missing",
        ),
        (
            changed(full_record().to_json(), pace={"step_s": [1.0], "fixed_s": []}),
            "pace: 1 steps, but 0 fixed",
        ),
    ],
)
def test_a_damaged_record_is_told_by_its_field(text: str, why: str) -> None:
    with pytest.raises(DpprofError, match=f"^{re.escape(why)}"):
        Record.from_json(text)


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"memory": {}}', changed(Failure("oom", "", at=0.0).to_json(), memory=None)],
)
def test_a_damaged_failure(text: str) -> None:
    with pytest.raises(DpprofError, match=r"^it is no valid JSON|^it should|is missing$|^memory should"):
        Failure.from_json(text)


def test_numbers_that_are_none_stay_readable() -> None:
    record = dataclasses.replace(full_record(), timed_s=math.inf, step_s=[math.nan, -math.inf])
    again = Record.from_json(record.to_json())
    assert (again.timed_s, again.step_s[1]) == (math.inf, -math.inf)
    assert math.isnan(again.step_s[0])


def test_a_pass_that_cannot_run_here_did_not_fail() -> None:
    passes = {"clean": PassOutcome("finished"), "counters": PassOutcome("skipped", "there is no GPU")}
    record = Record({}, {}, passes=passes)
    assert record.failed_passes == {}
    assert record.skipped_passes == {"counters": "there is no GPU"}


def test_a_record_from_before_verdicts_can_be_read() -> None:
    data = json.loads(full_record().to_json())
    data["gradient_check"] = {"relative_error_float64": 1e-16, "relative_error_float32": 1e-7}
    del data["nonfinite_losses"]
    record = Record.from_json(json.dumps(data))
    assert (record.gradient_check, record.nonfinite_losses) == (GradientCheck(1e-16, 1e-7), None)


def test_a_record_from_before_counters_can_be_read() -> None:
    data = json.loads(full_record().to_json())
    del data["counters"], data["ceilings"]
    record = Record.from_json(json.dumps(data))
    assert (record.counters, record.ceilings) == (None, None)


def test_a_record_from_before_guarantees_can_be_read() -> None:
    data = json.loads(full_record().to_json())
    del data["privacy"]
    assert Record.from_json(json.dumps(data)).privacy is None


def test_a_record_from_before_warnings_can_be_read() -> None:
    data = json.loads(full_record().to_json())
    del data["warnings"]
    assert Record.from_json(json.dumps(data)).warnings == []
