from example_findings import BUSY, run
from example_results import FINISHED, MIB, comparison, result

from dpprof.findings.comparison.comparison import Comparison, compare
from dpprof.findings.comparison.data import compute
from dpprof.pages.comparison.summary import description, to_markdown
from dpprof.record.record import Failure, FailureKind, GradientCheck, Memory, PassOutcome, PassStatus


def markdown(found: Comparison) -> str:
    return to_markdown(compute(found))


def table(found: Comparison, number: int) -> list[list[str]]:
    """The rows, header left out, of one of the Markdown tables."""
    blocks = [block for block in markdown(found).split("\n\n") if block.startswith("| ")]
    lines = [line.strip("|").split(" | ") for line in blocks[number].strip().splitlines()]
    assert {len(line) for line in lines} == {len(lines[0])}
    return [[text.strip() for text in line] for line in lines[2:]]


def test_the_answers_come_before_the_cells_and_a_failure_is_no_peak() -> None:
    oom = Failure(FailureKind.OOM, "no memory", memory=Memory(peak_allocated=900 * MIB))
    found = comparison(
        result("StandardTrainer", step_s=0.1, peak_mib=10, batch_size=1),
        result("StandardTrainer", step_s=0.1, peak_mib=40, batch_size=2),
        result("DPSGDTrainer", step_s=0.1, peak_mib=30, batch_size=1),
        result("DPSGDTrainer", batch_size=2, failure=oom),
        result("DPGhostClippingTrainer", batch_size=1, failure=oom),
    )
    assert table(found, 0) == [
        ["tiny, sequence 512", "", "", "", ""],
        ["standard", "", "50.0", "40.0", "2"],
        ["flat", "1; 2 does not fit", "100.0", "30.0", "1"],
        ["ghost", "below 1", "", "", ""],
    ]
    assert table(found, 1)[2][4:8] == ["DPGhostClippingTrainer", "**out of memory**", "", ""], (
        "what it held when it failed is no peak"
    )


def test_a_run_that_was_stopped_after_its_clean_pass_shows_figures_but_is_not_finished() -> None:
    stopped = result(step_s=0.1, peak_mib=10, failure=Failure(FailureKind.INTERRUPTED, "stopped by the user"))
    found = comparison(stopped)
    assert table(found, 1)[0][5:7] == ["100.0 ± 0.00 (interrupted)", "10.0"]


def test_the_cells_are_sorted_by_place_and_keep_the_order_of_trainers() -> None:
    found = comparison(
        result("StandardTrainer", step_s=0.5, peak_mib=2_000, batch_size=16, seq_len=64),
        result("StandardTrainer", step_s=0.05, peak_mib=100, batch_size=2, seq_len=64),
        result("DPSGDTrainer", step_s=0.002, peak_mib=1, batch_size=2, seq_len=64),
    )
    model = ["tiny (1.23M)", "fp32", "64"]
    assert table(found, 1) == [
        [*model, "2", "StandardTrainer", "50.0 ± 0.00", "1.00", "100.0", "1.00", "40.0"],
        [*model, "2", "DPSGDTrainer", "2.00 ± 0.00", "0.04", "1.00", "0.01", "1,000"],
        [*model, "16", "StandardTrainer", "500.0 ± 0.00", "1.00", "2,000", "1.00", "32.0"],
    ]


def test_what_the_gradient_check_says_has_a_column_where_it_was_asked_for() -> None:
    runs = [
        result(step_s=0.1, check=GradientCheck(0.0, 0.0), name="r1"),
        result(step_s=0.1, check=GradientCheck(fault="samples mix"), name="r2"),
        result("DPSGDTrainer", step_s=0.1, check=GradientCheck(doubt="it draws lots")),
        result("DPGhostClippingTrainer", step_s=0.1),
    ]
    found = comparison(*runs)
    assert [row[-1] for row in table(found, 1)] == ["fail", "cannot tell", ""], "the worst of a cell's runs"
    assert table(found, 2) == [["r2", "gradient check", "gradient check: samples mix"]]
    assert "gradient check" not in markdown(comparison(runs[-1]))


def test_the_source_and_what_varies_have_columns_and_times_their_spread() -> None:
    spread = result(step_s=[0.010, 0.028, 0.030, 0.032, 0.100])
    assert table(comparison(spread), 1)[0][5] == "30.0 ± 2.00"
    found = compare("x", {"a": [result(step_s=0.1, lr=0.5)], "b": [result(step_s=0.1)]})
    assert [row[:6] for row in table(found, 1)] == [
        ["a", "tiny (1.23M)", "fp32", "512", "4", "0.5"],
        ["b", "tiny (1.23M)", "fp32", "512", "4", "0.01"],
    ]


def test_failures_are_listed_with_the_first_line_of_their_reason() -> None:
    later = FINISHED | {"trace": PassOutcome(PassStatus.FAILED, "RuntimeError: no\nstack")}
    found = comparison(
        result("StandardTrainer", step_s=0.1),
        result("DPSGDTrainer", failure=Failure(FailureKind.OOM, "no memory left\nmore words")),
        result("DPGhostClippingTrainer", step_s=0.1, outcomes=later),
    )
    assert table(found, 2) == [
        ["DPSGDTrainer_tiny_bs4_seq512", "oom", "no memory left"],
        ["DPGhostClippingTrainer_tiny_bs4_seq512", "later pass", "trace pass: RuntimeError: no"],
    ]
    assert "## What failed" not in markdown(comparison(result(step_s=0.1)))


def test_a_reason_cannot_break_the_table_or_become_a_tag_and_is_cut() -> None:
    failed = result(failure=Failure(FailureKind.ERROR, "a | b <script>"), name="a<b|c")
    assert "| a&lt;b\\|c | error   | a \\| b &lt;script> |" in markdown(comparison(failed)).splitlines()
    failed = result(failure=Failure(FailureKind.ERROR, "x" * 1_000))
    assert table(comparison(failed), 2)[0][2] == "x" * 300


def test_the_verdict_comes_first_with_its_points_as_a_list() -> None:
    found = comparison(
        result(step_s=0.1, peak_mib=10, environment={"torch_version": "1"}),
        result("DPSGDTrainer", step_s=0.2, peak_mib=20, environment={"torch_version": "2"}),
    )
    text = markdown(found)
    name, first, *rest = text.split("\n\n")
    assert name == "# s"
    assert first == "**Warning.** These runs differ in torch (1, 2): their figures may not be comparable."
    assert description(compute(found)) == text.removeprefix("# s\n\n")
    assert any(part.startswith("Steps follow the documented training loop") for part in rest)
    savings = result(step_s=0.1, peak_mib=10)
    assert savings.record is not None
    savings.record.memory.saved = {"outputs": 2 * MIB}
    name, first, points, *_ = markdown(comparison(savings)).split("\n\n")
    assert first.startswith("**Savings.** The documented loop keeps memory")
    assert points.startswith("- standard at tiny, batch 4, sequence 512: ")


def test_disturbed_step_times_and_ratios_are_marked() -> None:
    calm = run("StandardTrainer", [0.1] * 9, 10)
    found = comparison(calm, run("DPSGDTrainer", [0.2] * 9, 20, **BUSY))
    assert [row[5:9] for row in table(found, 1)] == [
        ["100.0 ± 0.00", "1.00 (disturbed)", "10.0", "1.00"],
        ["200.0 ± 0.00 (disturbed)", "2.00 (disturbed)", "20.0", "2.00"],
    ]
    assert "\n`disturbed` marks step times measured while" in markdown(found)
    assert "isturbed" not in markdown(comparison(calm))
