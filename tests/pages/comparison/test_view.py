"""A comparison on the terminal: rows that fit, words for best and worst, the advice last."""

import re

from example_console import printed, terminal
from example_estimates import estimate
from example_findings import FAST, FLAT, GHOST, STANDARD, run
from example_results import MIB, comparison, result

from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.data import compute
from dpprof.pages.comparison.summary import view
from dpprof.pages.terminal import show
from dpprof.record.record import Failure, FailureKind, Memory


def shown(found: Comparison, width: int = 80, encoding: str = "utf-8") -> str:
    console = terminal(width, encoding)
    show(console, view(compute(found)))
    return printed(console)


def row(text: str, trainer: str, number: int = 0) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith(f"{trainer} ")]
    return re.split(r" {2,}", lines[number].strip())


FOUR = (
    run(STANDARD, 0.1, 100.0, batch_size=2),
    run(FLAT, 0.2, 400.0, batch_size=2),
    run(GHOST, 0.25, 200.0, batch_size=2),
    run(FAST, 0.4, 300.0, batch_size=2),
)


def test_a_row_has_figures_ratios_bars_and_words_for_best_and_worst() -> None:
    text = shown(comparison(*FOUR), width=140)
    assert "tiny (1.23M parameters), fp32" in text
    assert "batch 2, sequence 512" in text
    standard = ["standard", "100.0 ± 1.00", "1.00", 5 * "█", "100.0", "1.00", 5 * "█", "20.0"]
    assert row(text, "standard") == standard
    flat = ["flat", "200.0 ± 2.00", "2.00", 10 * "█", "fastest", "400.0", "4.00", 20 * "█", "most", "10.0"]
    assert row(text, "flat") == flat
    assert row(text, "ghost")[4:8] == ["200.0", "2.00", 10 * "█", "least"]
    assert row(text, "fast")[3:5] == [20 * "█", "slowest"]


def test_a_terminal_without_blocks_gets_signs() -> None:
    text = shown(comparison(*FOUR), encoding="ascii")
    assert text.isascii()
    assert "200.0 +- 2.00" in text
    assert " ### " in text


def test_places_share_the_scale_of_their_model() -> None:
    small = run(STANDARD, 0.1, 100.0, batch_size=2)
    text = shown(comparison(small, run(STANDARD, 0.4, 100.0, batch_size=8)), width=140)
    assert len(row(text, "standard", 0)[3]) * 4 == len(row(text, "standard", 1)[3])


def test_what_failed_says_how() -> None:
    held = Failure(FailureKind.OOM, "no memory", memory=Memory(peak_allocated=90 * MIB))
    text = shown(comparison(run(STANDARD, 0.1, 100.0), result(FLAT, failure=held)))
    assert row(text, "flat") == ["flat", "out of memory"], "what it held when it failed is no peak"
    assert "out of memory in DPSGDTrainer_tiny_bs4_seq512: no memory" in text


def test_an_estimate_has_its_time_and_says_whether_it_fits() -> None:
    text = shown(comparison(estimate(FLAT), estimate(GHOST, peak=50)), width=180)
    assert row(text, "flat")[:3] == ["flat", "2.00 (1.80 to 2.50)", "132.0"]
    assert any(re.search(r"needs .* fits$", cell) for cell in row(text, "ghost"))


def test_the_advice_comes_last() -> None:
    data = compute(
        comparison(*(run(t, 0.1 * (1 + i), 100.0 + i) for i, t in enumerate([STANDARD, FLAT, GHOST])))
    )
    assert data.findings[0].topic == "Use"
    console = terminal(110)
    show(console, view(data))
    text = printed(console)
    order = [
        "Steps follow",
        "peak memory [MiB]",
        "What each DP trainer adds to standard",
        "flat is DPSGDTrainer",
        "Memory.",
        "Use. For",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
