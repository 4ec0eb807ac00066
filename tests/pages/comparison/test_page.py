"""What the comparison page says, read out of its HTML; `test_browser.py` looks at it drawn."""

import re
from typing import Any

import pytest
from example_estimates import estimate
from example_findings import BUSY, FLAT, GHOST, OOM, STANDARD, run
from example_results import MIB, comparison, result
from page_reader import Page, text_of

from dpprof.config.flat import from_flat
from dpprof.errors import ConfigError
from dpprof.findings.comparison.comparison import Comparison, compare
from dpprof.findings.comparison.data import compute
from dpprof.findings.verdict.finding import Finding
from dpprof.pages.comparison.page import opening, render
from dpprof.pages.html import code
from dpprof.record.figures.results import Result
from dpprof.record.record import Failure, FailureKind, GradientCheck, PassOutcome, PassStatus
from dpprof.vocabulary.colors import CATEGORY_COLORS
from dpprof.vocabulary.phases import PHASES
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

STEPS = [0.1] * 9


def holding(trainer: str, held: dict[str, float], **more: Any) -> Result:
    """A run whose peak is the sum of its parts."""
    return result(trainer, **{"step_s": STEPS, **more}, peak_mib=sum(held.values()), at_peak=held)


def example() -> Comparison:
    """Two places; among the cells one out of memory, one that crashed, one with a single step."""
    machine = {"memory_gib": "0.1", "torch_version": "2.13.0"}
    standard = holding(
        "StandardTrainer",
        {"parameters": 4, "activations": 16},
        phase_ms={"forward": 30, "backward": 60},
        moved=[("forward", "copy", 3), ("backward", "copy", 5)],
        environment=machine,
    )
    held = {"parameters": 4.0, "per_sample_gradients": 46.0}
    return comparison(
        standard,
        holding("DPSGDTrainer", held, step_s=[0.25, 0.25, 0.26, 0.25, 0.24], environment=machine),
        result("DPGhostClippingTrainer", step_s=0.1, outcomes={}, failure=OOM, environment=machine),
        result("DPFastGradientClippingTrainer", failure=Failure(FailureKind.ERROR, "RuntimeError: no\nmore")),
        result(step_s=[0.4], peak_mib=30, batch_size=8, environment=machine),
    )


def shown(found: Comparison) -> str:
    return render(compute(found))


def table(of: Comparison, name: str = "runs") -> list[list[str]]:
    """The texts of a table of the page, without its heading."""
    return Page(shown(of)).tables[name][1:]


def test_every_cell_has_a_row_with_its_figures_under_its_place() -> None:
    found = table(example())
    assert [row[0] for row in found] == [
        "batch 4, sequence 512",
        "standard",
        "flat",
        "ghost",
        "fast",
        "batch 8, sequence 512",
        "standard",
    ]
    standard, flat = (" ".join(filter(None, row)) for row in found[1:3])
    assert standard == "standard 100.0 ± 0.00 1.00 20.0 1.00 40.0 8.00 1.00"
    assert flat == "flat 250.0 ± 0.00 2.50 50.0 2.50 16.0 0.00 0.00"
    assert "±" not in " ".join(found[-1]), "one step has no spread"


def test_failed_cells_are_shown_as_what_they_are() -> None:
    page = shown(example())
    found = {row[0]: row[1] for row in table(example()) if len(row) > 1}
    assert (found["ghost"], found["fast"]) == ("out of memory", "failed")
    assert "RuntimeError: no" in text_of(page)
    for word in ("None", "nan", "NaN", "Undefined", "inf "):
        assert word not in text_of(page)


def test_what_the_gradient_check_says_stands_in_the_row() -> None:
    checks = {
        "StandardTrainer": GradientCheck(0.0, 0.0),
        "DPSGDTrainer": GradientCheck(doubt="it <draws> lots"),
        "DPGhostClippingTrainer": GradientCheck(1.0, 1.0),
        "DPFastGradientClippingTrainer": None,
    }
    of = comparison(*(result(trainer, step_s=0.1, check=check) for trainer, check in checks.items()))
    assert [row[-1] for row in table(of)[1:]] == ["pass", "cannot tell", "fail", ""]
    failures = " ".join(text for row in table(of, "failures") for text in row)
    assert "DPGhostClippingTrainer" in failures
    assert "DPSGDTrainer" not in failures, "what cannot be told has not failed"


def test_bars_have_the_widths_of_their_parts() -> None:
    standard = holding("StandardTrainer", {"parameters": 4, "activations": 6})
    private = holding("DPSGDTrainer", {"parameters": 10, "per_sample_gradients": 30})
    page = shown(comparison(standard, private))
    widths = re.findall(r'<span style="width: ([\d.]+)%; [^"]*" title="([^"]*)"', page)
    memory = {title: float(width) for width, title in widths if "MiB" in title}
    assert memory["activations: 6.00 MiB"] == pytest.approx(100 * 6 / 40)
    assert memory["per-sample gradients: 30.0 MiB"] == pytest.approx(100 * 30 / 40)
    assert memory["parameters: 10.0 MiB"] == pytest.approx(100 * 10 / 40)


def test_a_disturbed_run_takes_the_award_for_time_and_marks_the_step_times_of_its_place() -> None:
    cells = [
        run(trainer, [step_s] * 9, peak, batch_size=batch, **busy)
        for batch, busy in ((2, {}), (4, BUSY))
        for trainer, step_s, peak in (("DPSGDTrainer", 0.1, 50), ("DPGhostClippingTrainer", 0.2, 20))
    ]
    found = [" ".join(row) for row in table(comparison(*cells))]
    marked = [re.findall("fastest|least|disturbed", row) for row in found]
    assert marked == [[], ["fastest"], ["least"], [], ["disturbed"], ["disturbed", "least"]]


def test_the_answers_come_first_and_leave_out_what_is_not_known() -> None:
    of = comparison(
        *(finished(trainer) for trainer in (STANDARD, FLAT)),
        result(GHOST, step_s=0.1, outcomes={}, failure=OOM),
    )
    found = Page(shown(of)).tables["answers"]
    assert found[0] == ["trainer", "largest batch", "s for 1,000 samples", "peak memory [MiB]", "at batch"]
    assert found[1:] == [
        ["tiny, sequence 512"],
        ["standard", "", "25.0", "40.0", "4"],
        ["flat", "", "25.0", "40.0", "4"],
        ["ghost", "below 4", "", "", ""],
    ]
    text = text_of(shown(comparison(estimate(FLAT), estimate(GHOST))))
    assert "0.50 (0.45 to 0.62)" in text


HOSTILE = "</script><script>alert('<é>\")</script><img src=x onerror=alert(1)>"


def test_no_name_can_become_part_of_the_page() -> None:
    """A run's name, a sweep's, an error, a version, a text file's: shown as they are, and nothing more."""
    one = result(step_s=STEPS, peak_mib=3, name=HOSTILE, environment={"cpu": HOSTILE, HOSTILE: "x"})
    failed = result("DPSGDTrainer", failure=Failure(FailureKind.ERROR, HOSTILE), name=HOSTILE + "2")
    later = {"clean": PassOutcome(PassStatus.FINISHED), HOSTILE: PassOutcome(PassStatus.FAILED, HOSTILE)}
    broken = result("DPGhostClippingTrainer", step_s=STEPS, outcomes=later, name=HOSTILE + "3")
    grown = result(step_s=STEPS, peak_mib=3, batch_size=8, name=HOSTILE + "4")
    found = compare(HOSTILE, {HOSTILE: [one, failed, broken, grown], "b": [one]})
    for cell in found.cells:
        if cell.source == HOSTILE:
            cell.settings["data"] = HOSTILE
    page = Page(shown(found))
    plain = Page(shown(compare("x", {"x": [one, failed, broken, grown], "b": [one]})))
    assert "img" not in page.tags
    assert page.tags.count("script") == plain.tags.count("script")
    assert f"data {HOSTILE}" in page.text, "the name itself is shown"
    with pytest.raises(ConfigError, match="workload"):
        from_flat({"workload": HOSTILE})


def test_the_page_fetches_nothing() -> None:
    page = shown(example())
    assert not re.findall(r"(?:https?:)?//[a-z]", re.sub(r"<!--.*?-->", "", page))
    assert "No experiment finished." in shown(comparison()), "an empty comparison is a page too"


def test_code_in_a_sentence_is_set_as_code_and_everything_is_escaped() -> None:
    saving = result("DPSGDTrainer", step_s=0.1, peak_mib=100.0, name="a<b>`c`")
    assert saving.record is not None
    saving.record.memory.saved = {"gradients": 20 * MIB, "outputs": 0, "all": 20 * MIB}
    drawn = render(compute(comparison(saving)))
    assert "call <code>zero_grad(set_to_none=True)</code>: -20.0 MiB." in drawn
    assert code("a <b> `c <d>`") == "a &lt;b&gt; <code>c &lt;d&gt;</code>"


def finished(trainer: str) -> Result:
    return result(trainer, step_s=STEPS, peak_mib=40, at_peak={"parameters": 40})


def test_a_sweep_of_24_cells_is_a_small_page() -> None:
    cells = [
        result(
            trainer,
            step_s=STEPS,
            peak_mib=50,
            at_peak=dict.fromkeys(CATEGORY_COLORS, 1.0),
            phase_ms=dict.fromkeys(PHASES, 1.0),
            moved=[(name, "copy", 1.0) for name in PHASES],
            batch_size=batch,
            seq_len=seq_len,
        )
        for trainer in DEFAULT_TRAINERS
        for batch in (2, 4)
        for seq_len in (64, 128)
    ]
    assert len(shown(comparison(*cells)).encode()) < 150_000


def test_the_page_opens_with_whom_to_train_with_and_the_answers() -> None:
    page = shown(comparison(*map(finished, (STANDARD, FLAT, GHOST))))
    places = [page.index(f'id="{name}"') for name in ("answers", "runs", "measured")]
    assert places == sorted(places)
    assert page.index('class="answer"') < places[0]
    assert page.index("Memory against time") < places[1]


def test_the_answer_is_the_finding_that_says_the_most() -> None:
    memory = Finding.of("memory.first", trainer=FLAT, where="at x", lead=[1.5])
    use = Finding.of("use.both", subject="x", trainer=FLAT, where="at x")
    assert opening([memory]) == memory
    assert opening([memory, use]) == use
    assert opening([Finding.of("savings")]) is None
    assert opening([]) is None


def test_comparisons_with_little_in_them_are_pages_too() -> None:
    for part, cells in (
        ("answers", [finished(STANDARD)]),
        ("failures", [result(name, failure=OOM) for name in (STANDARD, FLAT)]),
    ):
        assert f'id="{part}"' in shown(comparison(*cells))
