"""Cells side by side: grouping, order, figures, disturbed runs, varying settings."""

import json
from typing import Any

import pytest
from example_results import MIB, comparison, result
from record_metrics import metrics

from dpprof.errors import DpprofError
from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison, compare, merge
from dpprof.findings.comparison.run import Run
from dpprof.json_files import typed
from dpprof.record.figures.names import PEAK, STEP
from dpprof.record.record import Failure, FailureKind, Memory, PassOutcome, PassStatus, Record

VS_STEP = "vs_standard/latency/step_ms_median_ratio"


def ratios_by_run(found: Comparison) -> dict[str, dict[str, float]]:
    named = {run.name: found.ratios(cell, run) for cell in found.cells for run in cell.runs}
    return {name: ratios for name, ratios in named.items() if ratios}


def test_ratios_to_the_twin() -> None:
    standard = result("StandardTrainer", step_s=0.1, peak_mib=10)
    private = result("DPSGDTrainer", step_s=0.25, peak_mib=40)
    expected = {
        VS_STEP: 2.5,
        "vs_standard/throughput/samples_per_s_ratio": 0.4,
        "vs_standard/memory/peak_allocated_mib_ratio": 4,
    }
    found = comparison(private, standard)
    ratios = ratios_by_run(found)
    assert ratios[private.name] == pytest.approx(expected)
    assert set(ratios[standard.name].values()) == {1.0}
    assert [cell.trainer for cell in found.cells] == ["StandardTrainer", "DPSGDTrainer"], "in canonical order"
    assert found.ratio(found.cells[1], STEP) == pytest.approx(2.5)
    assert ratios_by_run(comparison(private)) == {}
    failed = result("StandardTrainer", step_s=0.1, failure=Failure(FailureKind.INTERRUPTED, "stopped"))
    assert ratios_by_run(comparison(failed, private)) == {}, "the twin did not finish"


OTHER_SETTINGS: dict[str, Any] = {
    "batch_size": 5,
    "seq_len": 99,
    "model_size": "small",
    "precision": "bf16",
    "attention": "dp_mha",
    "data": "zipf",
    "optimizer": "adamw",
    "lr": 0.5,
    "accumulation_steps": 2,
    "seed": 1,
    "measured_steps": 11,
    "passes": "clean",
}


@pytest.mark.parametrize("setting", OTHER_SETTINGS)
def test_a_run_that_differs_in_any_other_setting_is_no_twin(setting: str) -> None:
    standard = result("StandardTrainer", step_s=0.1, name="standard", **{setting: OTHER_SETTINGS[setting]})
    private = result("DPSGDTrainer", step_s=0.2, name="private")
    found = comparison(standard, private)
    assert list(ratios_by_run(found)) == ["standard"]
    assert len(found.places) == 2


def test_a_run_of_another_sweep_is_no_twin() -> None:
    found = compare("both", {"a": [result(step_s=0.1)], "b": [result("DPSGDTrainer", step_s=0.2, name="p")]})
    assert "p" not in ratios_by_run(found)
    assert found.sources == ["a", "b"]
    assert {found.place_name(cell) for cell in found.cells} == {
        "batch 4, sequence 512, a",
        "batch 4, sequence 512, b",
    }


def test_figures_count_of_a_failed_run_unless_its_clean_pass_did_not_finish() -> None:
    oom = Failure(FailureKind.OOM, "no memory", memory=Memory(peak_allocated=900 * MIB, peak_rss=1_000 * MIB))
    (cell,) = comparison(result(failure=oom)).cells
    assert (cell.figures[PEAK], cell.figures["memory/peak_rss_mib"]) == (900, 1_000)
    assert (cell.failure, cell.runs[0].reason, cell.status) == ("oom", "no memory", "FAILED")
    unfinished = {"clean": PassOutcome(PassStatus.FAILED, "x")}
    broken = result(step_s=0.1, outcomes=unfinished, failure=Failure(FailureKind.ERROR, "x"))
    assert comparison(broken).cells[0].figures == {}


def test_repeated_runs_are_one_cell_with_medians() -> None:
    times = {"a": 0.1, "a_rep2": 0.4, "a_rep3": 0.2}
    runs = [result(step_s=s, peak_mib=8, name=name) for name, s in times.items()]
    killed = result(failure=Failure(FailureKind.KILLED, "gone"), name="a_rep4")
    found = comparison(*runs, killed)
    (cell,) = found.cells
    assert [run.name for run in cell.runs] == ["a", "a_rep2", "a_rep3", "a_rep4"]
    assert cell.status == "FINISHED"
    assert cell.failure is None
    assert cell.figures[STEP] == pytest.approx(200)
    assert found.ratios(cell, cell.runs[1])[VS_STEP] == pytest.approx(2), "each run to the twin's median"


def test_what_varies_is_in_the_place_name() -> None:
    found = comparison(
        result(step_s=0.1, precision="bf16", name="a"), result(step_s=0.1, precision="fp32", lr=0.5, name="b")
    )
    assert [found.place_name(cell) for cell in found.cells] == [
        "batch 4, sequence 512, precision bf16, lr 0.01",
        "batch 4, sequence 512, precision fp32, lr 0.5",
    ]
    assert found.place_name(found.cells[0], without="batch_size") == "sequence 512, precision bf16, lr 0.01"


def test_cells_are_in_order_of_model_and_place() -> None:
    places = [("small", 16, 2), ("tiny", 64, 16), ("tiny", 64, 2), ("tiny", 32, 16)]
    found = comparison(
        *(result(step_s=0.1, model_size=m, seq_len=t, batch_size=b, name=f"{m}{t}{b}") for m, t, b in places)
    )
    assert [cell.runs[0].name for cell in found.cells] == ["tiny3216", "tiny642", "tiny6416", "small162"]
    given: list[dict[str, Any]] = [
        {"model_size": "small"},
        {"model_size": "tiny", "num_layers": 9},
        {"workload": "pkg:a"},
        {"model_size": "tiny"},
    ]
    found = comparison(*(result(step_s=0.1, name=str(i), **settings) for i, settings in enumerate(given)))
    assert [cell.config.model_title for cell in found.cells] == ["tiny", "tiny-layers9", "small", "a"]


def test_parts_of_a_cell_are_those_of_its_record() -> None:
    one = result(
        step_s=0.1,
        peak_mib=12,
        at_peak={"parameters": 4, "activations": 7},
        phase_ms={"forward": 30, "backward": 60},
        moved=[("forward", "copy", 3), ("backward", "copy", 5), ("backward", "copy", 1)],
    )
    (cell,) = comparison(one).cells
    assert one.record is not None
    assert cell.figures == metrics(one.record)
    assert cell.at_peak == {"parameters": 4, "activations": 7, "untracked": 1}
    assert cell.phase_ms == pytest.approx({"forward": 30, "backward": 60})
    assert cell.moved_by_phase == {"forward": 3, "backward": 6}
    assert [(m.phase, m.operator_class, m.mib) for m in cell.runs[0].moved] == [
        ("forward", "copy", 3),
        ("backward", "copy", 6),
    ]


def test_the_memory_of_the_device_is_the_limit() -> None:
    machine = {"memory_gib": "24.0", "gpu_memory_gib": "80.0"}
    (cell,) = comparison(result(step_s=0.1, environment=machine)).cells
    assert cell.limit_mib == 24 * 1024
    gpu = Cell("s", cell.settings | {"device": "cuda"}, cell.runs)
    assert gpu.limit_mib == 80 * 1024
    assert comparison(result(step_s=0.1)).cells[0].limit_mib is None


def test_the_json_gives_the_comparison_back() -> None:
    found = compare(
        "s ☃ </script>",
        {"a": [result(step_s=0.1, peak_mib=3, at_peak={"noise": 2}), result("DPSGDTrainer")], "b": []},
    )
    assert Comparison.from_data(json.loads(found.to_json())) == found
    data = json.loads(found.to_json())
    run = data["cells"][0]["runs"][0]
    assert run["figures"][PEAK] == 3
    assert typed(Run, run).step_s == [0.1, 0.1]
    for name in ("gradient_check", "gradient_check_reason", "nonfinite_losses"):
        del run[name]  # as from before verdicts
    assert Comparison.from_data(data) == found


def test_a_baseline_from_before_there_were_some_settings_compares() -> None:
    """Its settings are completed, so that cells of both have the same ones."""
    data = json.loads(comparison(result(step_s=0.1)).to_json())
    for name in ("poisson_sampling", "poisson_tail", "savings"):
        del data["cells"][0]["settings"][name]
    before = Comparison.from_data(data)
    assert before.cells[0].settings == comparison(result(step_s=0.1)).cells[0].settings
    both = merge([before, compare("now", {"now": [result(step_s=0.1)]})])
    assert [both.place_name(cell) for cell in both.cells] == [
        "batch 4, sequence 512, now",
        "batch 4, sequence 512, s",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "no comparison"),
        ('{"name": "x"}', "no comparison"),
        ('{"schema_version": 1, "name": "x"}', "schema version 1, not 2"),
        ('{"schema_version": 7}', "schema version 7"),
        ('{"schema_version": 2, "name": "x", "cells": [{"source": 1}]}', r"^cells\.0\.source should be"),
        (
            '{"schema_version": 2, "name": "x", "cells": [{"source": "x", "settings": {}, "runs": []}]}',
            "a cell has no runs",
        ),
    ],
)
def test_another_file_is_no_comparison(text: str, words: str) -> None:
    with pytest.raises(DpprofError, match=words):
        Comparison.from_data(json.loads(text))


TWO = {"cpu_cores": "2", "torch_threads": "2"}
STEADY = [0.1, 0.101, 0.1, 0.102, 0.1]


def of(
    step_s: list[float] = STEADY,
    environment: dict[str, str] = TWO,
    *,
    others: float | None = None,
    switches: int | None = None,
) -> list[str]:
    """The judgement on a record, `others` in processors."""
    timed = sum(step_s)
    record = Record({}, environment, step_s=step_s, timed_s=timed, involuntary_switches=switches)
    record.others_processor_s = None if others is None else others * timed
    return Run("a", "FINISHED", figures=metrics(record), step_s=step_s, environment=environment).disturbances


def test_a_quiet_run_is_calm_and_what_was_not_measured_speaks_against_nothing() -> None:
    assert of(others=0.1, switches=50) == of() == Run("a", "FINISHED").disturbances == []


@pytest.mark.parametrize(
    ("reasons", "changes"),
    [
        (["other processes used 0.5 of 2 processors"], {"others": 0.5}),
        ([], {"switches": 60, "others": 0.0}),  # in half a second
        (["it was preempted 201 times a second"], {"switches": 101}),
        (
            ["the interquartile range of its steps is 32 % of their median"],
            {"step_s": [0.024] * 3 + [0.033] * 3},
        ),
        ([], {"step_s": [0.03] * 3 + [0.036] * 3}),
        # The kernel counts others' time by the 10 ms: two of them in 20 ms of steps are within its error.
        ([], {"step_s": [0.002] * 10, "others": 1.0, "switches": 5}),
        (["other processes used 0.6 of 2 processors"], {"step_s": [0.01] * 10, "others": 0.6}),
        (
            ["other processes used 1.0 of 2 processors", "it was preempted 240 times a second"],
            {"step_s": [0.125] * 10, "others": 1.0, "switches": 300},
        ),
    ],
)
def test_what_disturbs_is_told(reasons: list[str], changes: dict[str, Any]) -> None:
    assert of(**changes) == reasons


@pytest.mark.parametrize(
    ("environment", "others", "is_calm"),
    [
        ({"cpu_cores": "16", "torch_threads": "8"}, 1.0, True),
        ({"cpu_cores": "16", "torch_threads": "8"}, 8.2, True),
        ({"cpu_cores": "16", "torch_threads": "8"}, 8.5, False),
        ({"cpu_cores": "16", "torch_threads": "16"}, 1.0, False),
        ({"cpu_cores": "2", "torch_threads": "1"}, 1.0, True),
        ({"cpu_cores": "2", "torch_threads": "1"}, 1.4, False),
        ({"cpu_cores": "2", "torch_threads": "4"}, 0.5, False),
        ({"cpu_cores": "2", "torch_threads": "2", "gpu": "H100"}, 1.0, True),
        ({"cpu_cores": "2", "torch_threads": "2", "gpu": "H100"}, 1.5, False),
        ({}, 0.5, False),
    ],
)
def test_processors_that_the_step_leaves_free_may_be_busy(
    environment: dict[str, str], others: float, is_calm: bool
) -> None:
    assert (of(environment=environment, others=others) == []) is is_calm
