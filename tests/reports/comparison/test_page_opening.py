"""What the comparison page opens with, in which order its parts come, and how large it is."""

import re

import pytest
from example_results import comparison, result

from dpprof.figures.results import Result
from dpprof.record.record import Failure
from dpprof.reports.colors import CATEGORY_COLORS
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.data import compute
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.page import advice, render
from dpprof.vocabulary.phases import PHASES
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS

STEPS = [0.1] * 9
OOM = Failure("oom", "CUDA out of memory")


def shown(found: Comparison) -> str:
    return render(compute(found))


def finished(trainer: str) -> Result:
    return result(trainer, step_s=STEPS, peak_mib=40, at_peak={"parameters": 40})


def test_a_sweep_of_24_cells_leaves_room_for_its_timelines() -> None:
    """Of the 500 kB that a page may have."""
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
    assert len(shown(comparison(*cells)).encode()) < 250_000


def test_the_page_opens_with_one_sentence_and_the_numbers() -> None:
    page = shown(
        comparison(
            *(finished(trainer) for trainer in ("StandardTrainer", "DPSGDTrainer", "DPGhostClippingTrainer"))
        )
    )
    marks = (
        'id="advice"',
        'id="tiles"',
        'id="scatter"',
        'id="filters"',
        'class="cells',
        'id="verdict"',
        'id="measured"',
    )
    assert [page.index(mark) for mark in marks] == sorted(page.index(mark) for mark in marks)
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert text.index("flat DPSGDTrainer") < text.index("Every run"), "what the short name stands for"


def test_the_advice_is_one_sentence_that_says_whom_to_train_with() -> None:
    memory = Finding[object]("Memory", "A needs 1.5 MiB at x. The next one needs more.", None)
    use = Finding[object]("Use", "Train with A.", None)
    said = advice([memory])
    assert said is not None
    assert said.text == "A needs 1.5 MiB at x."
    assert advice([memory, use]) == use
    assert advice([Finding("Savings", "Write this.", None)]) is None
    assert advice([]) is None


@pytest.mark.parametrize("trainer", [None, "StandardTrainer"])
def test_comparisons_with_little_in_them_are_pages_too(trainer: str | None) -> None:
    failed = [result(name, failure=OOM) for name in ("StandardTrainer", "DPSGDTrainer")]
    page = shown(comparison(*(failed if trainer is None else [finished(trainer)])))
    assert ('id="tiles"' in page) == (trainer is not None)
    assert 'id="scatter"' not in page
    assert 'id="growth-charts"' not in page
    assert ('id="failures"' in page) == (trainer is None)
