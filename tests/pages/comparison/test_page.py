"""What the comparison page says, read out of its HTML, tiles first; `test_browser.py` looks at it drawn."""

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import example_ledger
import pytest
from example_findings import BUSY, FLAT, GHOST, OOM, STANDARD, run
from example_results import MIB, comparison, result
from page_reader import Page, text_of

from dpprof.config.flat import from_flat
from dpprof.errors import ConfigError
from dpprof.findings.comparison.comparison import Comparison, compare
from dpprof.findings.comparison.data import compute
from dpprof.findings.verdict.finding import Finding
from dpprof.pages.comparison.page import Tiles, advice, render, tiles_of
from dpprof.pages.html import code
from dpprof.record.figures.results import Result, read_result
from dpprof.record.folder import RunFolder
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


def shown(found: Comparison, folders: dict[tuple[str, str], RunFolder] | None = None) -> str:
    return render(compute(found, folders))


def rows(page: str) -> dict[tuple[str, str], str]:
    """The text of each cell's row, by place and trainer."""
    found = {}
    for place in page.split('<section class="place"')[1:]:
        place = place.split("</section>")[0]
        name = re.findall(r"<h3>(.*?)</h3>", place)[0]
        for row in re.findall(
            r'<tr data-trainer="(\w+)">(.*?)</tr>\s*(?=<tr data-trainer|</tbody>)', place, re.S
        ):
            found[html.unescape(name), row[0]] = text_of(f"<tr>{row[1]}".replace("<", " <"))
    return found


def test_every_cell_has_a_row_with_its_figures() -> None:
    found = rows(shown(example()))
    place = "tiny, batch 4, sequence 512"
    assert list(found) == [
        (place, "StandardTrainer"),
        (place, "DPSGDTrainer"),
        (place, "DPGhostClippingTrainer"),
        (place, "DPFastGradientClippingTrainer"),
        ("tiny, batch 8, sequence 512", "StandardTrainer"),
    ]
    standard = found[place, "StandardTrainer"]
    for words in ("20.0 MiB 1.00 x", "100.0 ± 0.00 ms 1.00 x", "8.00 MiB 1.00 x"):
        assert words in standard
    assert standard.endswith("x 40.0")
    assert "activations 16.0" in standard, "what a bar is made of stands in the row's figures"
    assert "forward 30.0 3.00" in standard
    assert "50.0 MiB 2.50 x" in found[place, "DPSGDTrainer"]
    assert "250.0 ± 0.00 ms 2.50 x" in found[place, "DPSGDTrainer"]


def test_failed_cells_are_shown_as_what_they_are() -> None:
    page = shown(example())
    found = rows(page)
    oom = found["tiny, batch 4, sequence 512", "DPGhostClippingTrainer"]
    assert "more than this device's 102.4 MiB" in oom
    (bar,) = re.findall(r'class="oom" style="width: ([\d.]+)%"', page)
    assert float(bar) == 100, "the limit, 102.4 MiB, is the longest bar"
    crashed = found["tiny, batch 4, sequence 512", "DPFastGradientClippingTrainer"]
    assert re.findall(r"\b(error|not measured|\d+)\b", crashed) == ["error"] * 3
    assert "RuntimeError: no" in text_of(page)
    for word in ("None", "nan", "NaN", "Undefined", "inf "):
        assert word not in text_of(page)
    single = found["tiny, batch 8, sequence 512", "StandardTrainer"]
    assert "400.0 ms" in single
    assert "±" not in single, "one step has no spread"


def test_what_the_gradient_check_says_stands_in_the_row() -> None:
    checks = {
        "StandardTrainer": GradientCheck(0.0, 0.0),
        "DPSGDTrainer": GradientCheck(doubt="it <draws> lots"),
        "DPGhostClippingTrainer": GradientCheck(1.0, 1.0),
        "DPFastGradientClippingTrainer": None,
    }
    page = shown(comparison(*(result(trainer, step_s=0.1, check=check) for trainer, check in checks.items())))
    said = [re.findall(r"gradient check: (pass|fail|cannot tell) ", row) for row in rows(page).values()]
    assert said == [["pass"], ["cannot tell"], ["fail"], []]
    assert page.count('class="check bad"') == 2
    (failures,) = re.findall(r'<table id="failures"[^>]*>(.*?)</table>', page, re.S)
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
    found = rows(shown(comparison(*cells)))
    marked = {key: re.findall("fastest|least memory|disturbed", text) for key, text in found.items()}
    calm, disturbed = ("tiny, batch 2, sequence 512", "tiny, batch 4, sequence 512")
    assert marked == {
        (calm, "DPSGDTrainer"): ["fastest"],
        (calm, "DPGhostClippingTrainer"): ["least memory"],
        (disturbed, "DPSGDTrainer"): ["disturbed"],
        (disturbed, "DPGhostClippingTrainer"): ["least memory", "disturbed"],
    }
    assert "200.0 ± 0.00 ms disturbed" in found[disturbed, "DPGhostClippingTrainer"]


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


def test_a_damaged_timeline_is_told_and_the_rest_stands(tmp_path: Path) -> None:
    folder = example_ledger.folder(tmp_path / "run", example_ledger.record(), example_ledger.timeline())
    folder.ledger.write_bytes(b"no gzip")
    page = compute(comparison(read_result(folder)), {("s", "run"): folder})
    assert page.timelines == {}
    (doubt,) = page.damaged
    assert "ledger.json.gz cannot be read" in doubt
    assert "30.3 MiB" in text_of(render(page))


def test_the_page_fetches_nothing_and_has_no_pair_to_choose_without_timelines() -> None:
    page = shown(example())
    assert not re.findall(r"(?:https?:)?//[a-z]", re.sub(r"<!--.*?-->", "", page))
    assert 'id="pair"' not in page
    assert "No experiment finished." in shown(comparison()), "an empty comparison is a page too"


def test_code_in_a_sentence_is_set_as_code_and_everything_is_escaped() -> None:
    saving = result("DPSGDTrainer", step_s=0.1, peak_mib=100.0, name="a<b>`c`")
    assert saving.record is not None
    saving.record.memory.saved = {"gradients": 20 * MIB, "outputs": 0, "all": 20 * MIB}
    drawn = render(compute(comparison(saving)))
    assert "call <code>zero_grad(set_to_none=True)</code>: -20.0 MiB." in drawn
    assert code("a <b> `c <d>`") == "a &lt;b&gt; <code>c &lt;d&gt;</code>"


def tiles(*results: Result) -> Tiles:
    found = tiles_of(compute(comparison(*results)))
    assert found is not None
    return found


def batches(found: Tiles) -> dict[str, str]:
    return {row.cell.trainer: found.largest_batch.get(row.cell.trainer, "") for row in found.place.rows}


def series(trainer: str, sizes: Sequence[int], step_s: float = 0.1, **more: float) -> list[Result]:
    return [
        result(trainer, step_s=step_s * size, peak_mib=10 * size, batch_size=size, **more)  # type: ignore[arg-type]
        for size in sizes
    ]


def test_figures_hold_at_the_largest_place_where_most_finished() -> None:
    failed = result("DPSGDTrainer", step_s=0.1, outcomes={}, failure=OOM, batch_size=8)
    found = tiles(*series("StandardTrainer", [2, 4, 8]), *series("DPSGDTrainer", [2, 4], 0.3), failed)
    assert found.place.name == "batch 4, sequence 512"
    (standard, flat) = (row.bars for row in found.place.rows)
    assert (standard["peak_memory"].total, flat["step_time"].ratio) == (40, 3)
    assert found.longest["step_time"] == flat["step_time"].total
    assert found.has_ratios


def test_where_memory_ran_out_the_batches_that_were_tried_are_told() -> None:
    failed = [
        result(trainer, step_s=0.1, outcomes={}, failure=OOM, batch_size=size)
        for trainer, size in (("DPSGDTrainer", 8), ("DPFastGradientClippingTrainer", 4))
    ]
    found = tiles(*series("StandardTrainer", [4, 8]), *series("DPSGDTrainer", [4]), *failed)
    assert batches(found) == {
        "StandardTrainer": "8 or more",
        "DPSGDTrainer": "4; 8 runs out",
        "DPFastGradientClippingTrainer": "below 4",
    }
    assert "of those tried" in found.note


@pytest.mark.parametrize("models", [("tiny",), ("tiny", "small")])
def test_else_lines_through_the_peaks_of_the_model_are_extended(models: tuple[str, ...]) -> None:
    """Backward takes 10 MiB a sample of the device's 100, twice as much with the other trainer; `small`, five
    times as heavy, reaches the limit first and says nothing of `tiny`.
    """
    found = tiles(
        *(
            result(
                trainer,
                step_s=0.1,
                peak_mib=mib * size,
                at_peak={"activations": mib * size},
                batch_size=size,
                model_size=model,
                environment={"memory_gib": str(100 / 1024)},
            )
            for model, heavier in zip(models, (1, 5), strict=False)
            for trainer, mib in (("DPSGDTrainer", 20 * heavier), ("DPGhostClippingTrainer", 10 * heavier))
            for size in (2, 4)
        )
    )
    assert found.model.label == "tiny"
    assert batches(found) == {"DPSGDTrainer": "at most about 5", "DPGhostClippingTrainer": "at most about 10"}
    assert "for tiny, sequence 512" in found.note
    assert "100.0 MiB" in found.note
    assert "not measured" in found.note


def test_a_place_without_others_has_a_tile_and_one_where_nothing_finished_none() -> None:
    assert tiles_of(compute(comparison())) is None
    assert tiles_of(compute(comparison(result(failure=OOM)))) is None
    found = tiles(result("DPSGDTrainer", step_s=0.1, peak_mib=3))
    assert (len(found.place.rows), found.has_ratios, found.note) == (1, False, "")


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
    page = shown(comparison(*map(finished, (STANDARD, FLAT, GHOST))))
    places = [page.index(f'id="{name}"') for name in ("advice", "tiles", "scatter", "filters", "verdict")]
    assert places == sorted(places)
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert text.index("flat DPSGDTrainer") < text.index("Every run"), "what the short name stands for"


def test_the_advice_is_one_sentence_that_says_whom_to_train_with() -> None:
    memory = Finding("Memory", "A needs 1.5 MiB at x. The next one needs more.")
    use = Finding("Use", "Train with A.")
    said = advice([memory])
    assert said is not None
    assert said.text == "A needs 1.5 MiB at x."
    assert advice([memory, use]) == use
    assert advice([Finding("Savings", "Write this.")]) is None
    assert advice([]) is None


def test_comparisons_with_little_in_them_are_pages_too() -> None:
    parts = ("tiles", "scatter", "growth-charts", "failures")
    for part, cells in (
        ("tiles", [finished(STANDARD)]),
        ("failures", [result(name, failure=OOM) for name in (STANDARD, FLAT)]),
    ):
        page = shown(comparison(*cells))
        assert [name for name in parts if f'id="{name}"' in page] == [part]
