import dataclasses
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dpprof.config import ExperimentConfig
from dpprof.paths import RunFolder
from dpprof.record import Failure, Memory, PassOutcome, Record
from dpprof.reports.summary import Summary, TrainerRow, summarize, to_markdown, twin_ratios
from dpprof.results import Result
from dpprof.settings import parse_all

MIB = 1_048_576
FINISHED = {"clean": PassOutcome("finished")}


def result(
    trainer: str = "StandardTrainer",
    *,
    step_s: float = 0.0,
    peak_mib: int | None = None,
    outcomes: dict[str, PassOutcome] = FINISHED,
    failure: Failure | None = None,
    name: str | None = None,
    **settings: object,
) -> Result:
    """An experiment with two steps of the given time, or without a record if it is 0."""
    config = parse_all(ExperimentConfig, {"trainer": trainer, **settings}).resolve(cuda_available=False)
    record = None
    if step_s:
        peak = None if peak_mib is None else peak_mib * MIB
        record = Record(
            vars(config),
            {},
            passes=outcomes,
            num_parameters=1_230_000,
            samples_per_step=config.batch_size,
            step_s=[step_s, step_s],
            memory=Memory(peak_allocated=peak),
        )
    return Result(RunFolder(Path(name or config.run_name)), config, record, failure)


def table(summary: Summary, number: int) -> list[list[str]]:
    """The rows, header left out, of one of the Markdown tables."""
    blocks = [block for block in to_markdown(summary).split("\n\n") if block.startswith("| ")]
    lines = [line.strip("|").split(" | ") for line in blocks[number].strip().splitlines()]
    assert {len(line) for line in lines} == {len(lines[0])}
    return [[text.strip() for text in line] for line in lines[2:]]


def test_success_and_mean_peak_by_trainer_count_finished_runs_only() -> None:
    oom = Failure("oom", "no memory", memory=Memory(peak_allocated=900 * MIB))
    summary = summarize(
        "s",
        [
            result("StandardTrainer", step_s=0.1, peak_mib=10, batch_size=1),
            result("StandardTrainer", step_s=0.1, peak_mib=40, batch_size=2),
            result("DPSGDTrainer", step_s=0.1, peak_mib=30, batch_size=1),
            result("DPSGDTrainer", batch_size=2, failure=oom),
            result("DPGhostClippingTrainer", batch_size=1, failure=oom),
        ],
    )
    assert summary.trainers == [
        TrainerRow("StandardTrainer", 2, 2, 25),
        TrainerRow("DPSGDTrainer", 1, 2, 30),
        TrainerRow("DPGhostClippingTrainer", 0, 1, None),
    ]
    assert table(summary, 0) == [
        ["StandardTrainer", "2 of 2", "25.0"],
        ["DPSGDTrainer", "1 of 2", "30.0"],
        ["DPGhostClippingTrainer", "0 of 1", ""],
    ]


def test_a_run_that_was_stopped_after_its_clean_pass_shows_figures_but_is_not_finished() -> None:
    stopped = result(step_s=0.1, peak_mib=10, failure=Failure("interrupted", "stopped by the user"))
    summary = summarize("s", [stopped])
    assert summary.trainers == [TrainerRow("StandardTrainer", 0, 1, None)]
    assert summary.cells[0].status == "KILLED"
    assert table(summary, 1)[0][5:8] == ["100.0 ± 0.00", "", "10.0"]


def test_figures_of_a_run_whose_clean_pass_did_not_finish_are_not_shown() -> None:
    broken = result(step_s=0.1, outcomes={"clean": PassOutcome("failed", "x")}, failure=Failure("error", "x"))
    assert set(summarize("s", [broken]).cells[0].figures.values()) == {None}


def test_ratios_to_the_twin() -> None:
    standard = result("StandardTrainer", step_s=0.1, peak_mib=10)
    private = result("DPSGDTrainer", step_s=0.25, peak_mib=40)
    expected = {
        "vs_standard/latency/step_ms_median_ratio": 2.5,
        "vs_standard/throughput/samples_per_s_ratio": 0.4,
        "vs_standard/memory/peak_allocated_mib_ratio": 4,
    }
    found = twin_ratios([private, standard])
    assert found[private.name] == pytest.approx(expected)
    assert set(found[standard.name].values()) == {1.0}
    cells = summarize("s", [private, standard]).cells
    assert [cell.trainer for cell in cells] == ["StandardTrainer", "DPSGDTrainer"], "in canonical order"
    assert cells[1].ratios == found[private.name]


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
    assert list(twin_ratios([standard, private])) == ["standard"]


def test_an_unfinished_twin_gives_no_ratios() -> None:
    failed = result("StandardTrainer", step_s=0.1, failure=Failure("interrupted", "stopped"))
    private = result("DPSGDTrainer", step_s=0.2)
    assert twin_ratios([failed, private]) == {}
    assert twin_ratios([private]) == {}


def test_the_cells_are_sorted_by_place_and_keep_the_order_of_trainers() -> None:
    summary = summarize(
        "s",
        [
            result("StandardTrainer", step_s=0.5, peak_mib=2_000, batch_size=16, seq_len=64),
            result("StandardTrainer", step_s=0.05, peak_mib=100, batch_size=2, seq_len=64),
            result("DPSGDTrainer", step_s=0.002, peak_mib=1, batch_size=2, seq_len=64),
        ],
    )
    model = ["tiny (1.23M)", "fp32", "64"]
    assert table(summary, 1) == [
        [*model, "2", "StandardTrainer", "50.0 ± 0.00", "1.00", "100.0", "1.00", "40.0"],
        [*model, "2", "DPSGDTrainer", "2.00 ± 0.00", "0.04", "1.00", "0.01", "1,000"],
        [*model, "16", "StandardTrainer", "500.0 ± 0.00", "1.00", "2,000", "1.00", "32.0"],
    ]


def test_texts_are_left_and_numbers_right() -> None:
    lines = to_markdown(summarize("s", [result(step_s=0.1)])).splitlines()
    rules = [re.sub("-+", "-", line) for line in lines if "---" in line]
    assert rules == ["| - | - | -: |", "| - | - | - | - | - | -: | -: | -: | -: | -: |"]
    for previous, line in itertools.pairwise(lines):
        if previous.startswith("|") and line.startswith("|"):
            assert len(previous) == len(line), "columns are not aligned"


def test_half_the_interquartile_range_stands_beside_the_step_time() -> None:
    run = result(step_s=0.1)
    assert run.record is not None
    run.record.step_s = [0.010, 0.020, 0.030, 0.040, 0.100]
    assert table(summarize("s", [run]), 1)[0][5] == "30.0 ± 10.0"


def test_what_is_not_known_is_blank() -> None:
    failed = result("DPSGDTrainer", failure=Failure("timeout", "stopped after 5 seconds"))
    finished = result("StandardTrainer", step_s=0.1)
    rows = table(summarize("s", [finished, failed]), 1)
    assert rows[0][5:] == ["100.0 ± 0.00", "1.00", "", "", "40.0"]
    assert rows[1] == ["tiny", "fp32", "512", "4", "DPSGDTrainer", "timeout", "", "", "", ""]


def test_the_last_figures_of_a_failed_run_are_shown() -> None:
    oom = Failure("oom", "no memory", memory=Memory(peak_allocated=900 * MIB, peak_rss=1_000 * MIB))
    (cell,) = summarize("s", [result(failure=oom)]).cells
    assert (cell.figures["peak_mib"], cell.figures["peak_rss_mib"]) == (900, 1_000)
    assert (cell.failure, cell.reason) == ("oom", "no memory")


def test_failures_are_listed_with_the_first_line_of_their_reason() -> None:
    later = FINISHED | {"trace": PassOutcome("failed", "RuntimeError: no\nstack")}
    summary = summarize(
        "s",
        [
            result("StandardTrainer", step_s=0.1),
            result("DPSGDTrainer", failure=Failure("oom", "no memory left\nmore words")),
            result("DPGhostClippingTrainer", step_s=0.1, outcomes=later),
        ],
    )
    assert table(summary, 2) == [
        ["DPSGDTrainer_tiny_bs4_seq512", "oom", "no memory left"],
        ["DPGhostClippingTrainer_tiny_bs4_seq512", "later pass", "trace pass: RuntimeError: no"],
    ]
    assert "## Failures" not in to_markdown(summarize("s", [result(step_s=0.1)]))


def test_a_reason_cannot_break_the_table_or_become_a_tag() -> None:
    failed = result(failure=Failure("error", "a | b <script>"), name="a<b|c")
    markdown = to_markdown(summarize("s", [failed]))
    assert "| a&lt;b\\|c | error   | a \\| b &lt;script> |" in markdown.splitlines()


def test_a_long_reason_is_cut() -> None:
    failed = result(failure=Failure("error", "x" * 1_000))
    assert table(summarize("s", [failed]), 2)[0][2] == "x" * 300


def test_the_json_holds_the_same_summary() -> None:
    summary = summarize("s ☃", [result(step_s=0.1, peak_mib=3), result("DPSGDTrainer")])
    assert json.loads(summary.to_json()) == dataclasses.asdict(summary)
